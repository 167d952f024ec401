# Staging: as production in shape, only smaller, so that what works here works there.

locals {
  tags = {
    Fabric      = "nf-staging"
    Environment = "staging"
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
      cidr            = "10.60.0.0/16"
      zones           = ["us-west-2a", "us-west-2b", "us-west-2c"]
      image_id        = var.images.oregon
      certificate_arn = var.certificates.oregon
    }
    second = {
      name            = "dublin"
      cidr            = "10.61.0.0/16"
      zones           = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
      image_id        = var.images.dublin
      certificate_arn = var.certificates.dublin
    }
  }

  proxy = {
    name     = "singapore"
    nearest  = "oregon"
    cidr     = "10.62.0.0/16"
    zones    = ["ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"]
    image_id = var.images.singapore
    number   = 1
  }

  client = { number = 1, instance_type = "t3.medium", data_gb = 20 }
  core   = { number = 3, instance_type = "t3.large", data_gb = 20 }
  store  = { number = 3, instance_type = "r7i.large", data_gb = 60 }
  retail = { instance_type = "c7i.large", readers_per_box = 5000, plan = { least = 2, most = 6 } }

  origins             = var.origins
  tokens              = var.tokens
  publisher_cidrs     = var.publisher_cidrs
  evacuated           = var.evacuated
  alarm_emails        = var.alarm_emails
  deletion_protection = false
}
