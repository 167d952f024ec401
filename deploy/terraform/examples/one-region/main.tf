# The smallest fabric on AWS: one region with one core node and one store node, for trying it. Only boxes survive the loss of a
# machine. For a second region, see environments/.

provider "aws" {
  region = "us-west-2"

  default_tags {
    tags = { Fabric = "nf-try" }
  }
}

module "oregon" {
  source = "../../modules/region"

  fabric          = "nf-try"
  region          = "oregon"
  domain          = var.domain
  cidr            = "10.20.0.0/16"
  zones           = ["us-west-2a", "us-west-2b"]
  image_id        = var.image_id
  certificate_arn = var.certificate_arn
  publisher_cidrs = var.publisher_cidrs

  core  = { number = 1 }
  store = { number = 1, data_gb = 60 }
  retail = {
    readers_per_box = 50000
    plan            = { least = 2, most = 4 }
  }
  deletion_protection = false
}

module "routing" {
  source = "../../modules/routing"

  domain  = var.domain
  zone_id = var.zone_id
  regions = {
    oregon = merge(module.oregon.doors, { aws_region = module.oregon.aws_region })
  }
  inside = {
    zone     = "nf-try.internal"
    networks = { oregon = { vpc_id = module.oregon.network.vpc_id, aws_region = module.oregon.aws_region } }
    hosts    = merge([for hosts in values(module.oregon.hosts) : { for name, host in hosts : name => host.address }]...)
  }
}

output "hosts" {
  description = "Group of the inventory to its hosts."
  value       = module.oregon.hosts
}

output "frontdesk_url" {
  description = "URL at which readers ask for a box."
  value       = module.routing.frontdesk_urls["oregon"]
}
