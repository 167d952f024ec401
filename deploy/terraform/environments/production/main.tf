# Two equal regions and a proxy cluster in a third. The folder staging has links to these files: an environment's own values are in its
# environment.auto.tfvars, and the key of its state in its backend.tf.

locals {
  tags = {
    Fabric      = var.name
    Environment = basename(abspath(path.root))
    ManagedBy   = "terraform"
  }

  inside = "${var.name}.internal"

  proxy_network = {
    vpc_id          = module.proxy_network.vpc_id
    cidr            = module.proxy_network.cidr
    aws_region      = var.proxy.aws_region
    route_table_ids = module.proxy_network.route_table_ids
  }

  tiers = {
    (var.regions.first.name)  = module.first.tiers
    (var.regions.second.name) = module.second.tiers
    (var.proxy.name) = {
      kind    = "proxy"
      edge    = []
      brokers = module.proxy_network.brokers_cidrs
      store   = []
    }
  }
}

provider "aws" {
  alias  = "first"
  region = var.regions.first.aws_region

  default_tags {
    tags = local.tags
  }
}

provider "aws" {
  alias  = "second"
  region = var.regions.second.aws_region

  default_tags {
    tags = local.tags
  }
}

provider "aws" {
  alias  = "proxy"
  region = var.proxy.aws_region

  default_tags {
    tags = local.tags
  }
}

module "first" {
  source    = "../../modules/region"
  providers = { aws = aws.first }

  fabric              = var.name
  region              = var.regions.first.name
  domain              = var.domain
  origins             = var.origins
  tokens              = var.tokens
  cidr                = var.regions.first.cidr
  zones               = var.regions.first.zones
  image_id            = var.images[var.regions.first.name]
  certificate_arn     = var.certificates[var.regions.first.name]
  publisher_cidrs     = var.publisher_cidrs
  far                 = { for name, tiers in local.tiers : name => tiers if name != var.regions.first.name }
  client              = var.client
  core                = var.core
  store               = var.store
  retail              = var.retail
  alarm_emails        = var.alarm_emails
  deletion_protection = var.deletion_protection
}

module "second" {
  source    = "../../modules/region"
  providers = { aws = aws.second }

  fabric              = var.name
  region              = var.regions.second.name
  domain              = var.domain
  origins             = var.origins
  tokens              = var.tokens
  cidr                = var.regions.second.cidr
  zones               = var.regions.second.zones
  image_id            = var.images[var.regions.second.name]
  certificate_arn     = var.certificates[var.regions.second.name]
  publisher_cidrs     = var.publisher_cidrs
  far                 = { for name, tiers in local.tiers : name => tiers if name != var.regions.second.name }
  client              = var.client
  core                = var.core
  store               = var.store
  retail              = var.retail
  alarm_emails        = var.alarm_emails
  deletion_protection = var.deletion_protection
}

data "aws_caller_identity" "here" {
  provider = aws.proxy
}

module "proxy_iam" {
  source    = "../../modules/iam"
  providers = { aws = aws.proxy }

  name       = "${var.name}-${var.proxy.name}"
  roles      = ["proxy"]
  account_id = data.aws_caller_identity.here.account_id
  aws_region = var.proxy.aws_region
}

module "proxy_network" {
  source    = "../../modules/network"
  providers = { aws = aws.proxy }

  name        = "${var.name}-${var.proxy.name}"
  cidr        = var.proxy.cidr
  zones       = var.proxy.zones
  kms_key_arn = module.proxy_iam.kms_key_arn
  # The machines of the proxy network have an internet route of their own.
  endpoints = []
}

module "proxy_firewall" {
  source    = "../../modules/firewall"
  providers = { aws = aws.proxy }

  name            = "${var.name}-${var.proxy.name}"
  kind            = "proxy"
  network         = { vpc_id = module.proxy_network.vpc_id, ssh_door_id = module.proxy_network.ssh_door_id }
  publisher_cidrs = var.publisher_cidrs
  far             = { for name, tiers in local.tiers : name => tiers if name != var.proxy.name }
}

module "proxy" {
  source    = "../../modules/brokers"
  providers = { aws = aws.proxy }

  role               = "proxy"
  name               = "${var.proxy.name}-proxy"
  fabric             = var.name
  region             = var.proxy.name
  number             = var.proxy.number
  zones              = var.proxy.zones
  subnets            = module.proxy_network.brokers_subnets
  image_id           = var.images[var.proxy.name]
  instance_type      = var.proxy.instance_type
  instance_profile   = module.proxy_iam.instance_profiles["proxy"]
  security_group_ids = [module.proxy_firewall.groups["proxy"]]
  kms_key_arn        = module.proxy_iam.kms_key_arn
  data               = { gb = var.proxy.data_gb }
}

module "peering_first_second" {
  source    = "../../modules/peering"
  providers = { aws.near = aws.first, aws.far = aws.second }

  name = "${var.name}-first-second"
  near = module.first.network
  far  = module.second.network
}

module "peering_first_proxy" {
  source    = "../../modules/peering"
  providers = { aws.near = aws.first, aws.far = aws.proxy }

  name = "${var.name}-first-proxy"
  near = module.first.network
  far  = local.proxy_network
}

module "peering_second_proxy" {
  source    = "../../modules/peering"
  providers = { aws.near = aws.second, aws.far = aws.proxy }

  name = "${var.name}-second-proxy"
  near = module.second.network
  far  = local.proxy_network
}

module "routing" {
  source    = "../../modules/routing"
  providers = { aws = aws.first }

  domain    = var.domain
  zone_id   = var.zone_id
  evacuated = var.evacuated
  regions = {
    (var.regions.first.name)  = merge(module.first.doors, { aws_region = module.first.aws_region })
    (var.regions.second.name) = merge(module.second.doors, { aws_region = module.second.aws_region })
  }
  inside = {
    zone = local.inside
    networks = {
      first  = { vpc_id = module.first.network.vpc_id, aws_region = module.first.aws_region }
      second = { vpc_id = module.second.network.vpc_id, aws_region = module.second.aws_region }
      proxy  = { vpc_id = module.proxy_network.vpc_id, aws_region = var.proxy.aws_region }
    }
    hosts = { for name, host in local.all_hosts : name => host.address }
  }
}
