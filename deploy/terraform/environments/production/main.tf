# Production: oregon and dublin, three zones each, and a proxy cluster in singapore.

locals {
  tags = {
    Fabric      = "newsfabric"
    Environment = "production"
    ManagedBy   = "terraform"
  }
}

provider "aws" {
  alias  = "oregon"
  region = "us-west-2"

  default_tags {
    tags = local.tags
  }
}

provider "aws" {
  alias  = "dublin"
  region = "eu-west-1"

  default_tags {
    tags = local.tags
  }
}

provider "aws" {
  alias  = "singapore"
  region = "ap-southeast-1"

  default_tags {
    tags = local.tags
  }
}

module "fabric" {
  source = "../../modules/fabric"
  providers = {
    aws.first  = aws.oregon
    aws.second = aws.dublin
    aws.proxy  = aws.singapore
  }

  name    = local.tags.Fabric
  domain  = var.domain
  zone_id = var.zone_id

  regions = {
    first = {
      name            = "oregon"
      cidr            = "10.1.0.0/16"
      zones           = ["us-west-2a", "us-west-2b", "us-west-2c"]
      image_id        = var.images.oregon
      certificate_arn = var.certificates.oregon
    }
    second = {
      name            = "dublin"
      cidr            = "10.2.0.0/16"
      zones           = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
      image_id        = var.images.dublin
      certificate_arn = var.certificates.dublin
    }
  }

  proxy = {
    name     = "singapore"
    nearest  = "oregon"
    cidr     = "10.3.0.0/16"
    zones    = ["ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"]
    image_id = var.images.singapore
    number   = 3
  }

  # Three clients, so that gold has two ways in when one is lost.
  client = { number = 3 }
  core   = { number = 3 }
  store  = { number = 3, data_gb = 500 }
  retail = { instance_type = "c7i.xlarge", readers_per_box = 50000, plan = { least = 3, most = 200 } }

  origins             = var.origins
  tokens              = var.tokens
  publisher_cidrs     = var.publisher_cidrs
  evacuated           = var.evacuated
  alarm_emails        = var.alarm_emails
  deletion_protection = true
}
