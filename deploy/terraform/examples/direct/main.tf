# One region whose readers come to boxes' own addresses: no balancer to pay for each connection, and 100,000 readers on a box. Boxes must end TLS
# themselves and have a name each: see "Readers without a balancer" in the README.

provider "aws" {
  region = "us-west-2"

  default_tags {
    tags = { Fabric = "nf-direct" }
  }
}

module "oregon" {
  source = "../../modules/region"

  fabric          = "nf-direct"
  region          = "oregon"
  domain          = var.domain
  cidr            = "10.21.0.0/16"
  zones           = ["us-west-2a", "us-west-2b", "us-west-2c"]
  image_id        = var.image_id
  certificate_arn = var.certificate_arn
  publisher_cidrs = var.publisher_cidrs
  readers_edge    = "direct"

  core  = { number = 3 }
  store = { number = 3, data_gb = 50 }
  retail = {
    readers_per_box = 100000
    plan            = { least = 2, most = 20 }
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
    zone     = "nf-direct.internal"
    networks = { oregon = { vpc_id = module.oregon.network.vpc_id, aws_region = module.oregon.aws_region } }
    hosts    = merge([for hosts in values(module.oregon.hosts) : { for name, host in hosts : name => host.address }]...)
  }
}

output "hosts" {
  description = "Group of the inventory to its hosts."
  value       = module.oregon.hosts
}

output "frontdesk_url" {
  description = "Where readers ask for a box."
  value       = module.routing.frontdesk_urls["oregon"]
}
