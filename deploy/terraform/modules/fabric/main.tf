# Two equal regions and a proxy cluster in a third: what environments/production and staging are.

locals {
  inside = "${var.name}.internal"

  proxy_network = {
    vpc_id          = module.proxy_network.vpc_id
    cidr            = module.proxy_network.cidr
    aws_region      = data.aws_region.proxy.region
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

module "first" {
  source    = "../region"
  providers = { aws = aws.first }

  fabric              = var.name
  region              = var.regions.first.name
  domain              = var.domain
  origins             = var.origins
  tokens              = var.tokens
  cidr                = var.regions.first.cidr
  zones               = var.regions.first.zones
  image_id            = var.regions.first.image_id
  certificate_arn     = var.regions.first.certificate_arn
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
  source    = "../region"
  providers = { aws = aws.second }

  fabric              = var.name
  region              = var.regions.second.name
  domain              = var.domain
  origins             = var.origins
  tokens              = var.tokens
  cidr                = var.regions.second.cidr
  zones               = var.regions.second.zones
  image_id            = var.regions.second.image_id
  certificate_arn     = var.regions.second.certificate_arn
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

data "aws_region" "proxy" {
  provider = aws.proxy
}

module "proxy_iam" {
  source    = "../iam"
  providers = { aws = aws.proxy }

  name       = "${var.name}-${var.proxy.name}"
  roles      = ["proxy"]
  account_id = data.aws_caller_identity.here.account_id
  aws_region = data.aws_region.proxy.region
}

module "proxy_network" {
  source    = "../network"
  providers = { aws = aws.proxy }

  name        = "${var.name}-${var.proxy.name}"
  cidr        = var.proxy.cidr
  zones       = var.proxy.zones
  kms_key_arn = module.proxy_iam.kms_key_arn
  # Its machines have a way to the internet of their own.
  endpoints = []
}

module "proxy_firewall" {
  source    = "../firewall"
  providers = { aws = aws.proxy }

  name            = "${var.name}-${var.proxy.name}"
  kind            = "proxy"
  network         = { vpc_id = module.proxy_network.vpc_id, ssh_door_id = module.proxy_network.ssh_door_id }
  publisher_cidrs = var.publisher_cidrs
  far             = { for name, tiers in local.tiers : name => tiers if name != var.proxy.name }
}

module "proxy" {
  source    = "../brokers"
  providers = { aws = aws.proxy }

  role               = "proxy"
  name               = "${var.proxy.name}-proxy"
  fabric             = var.name
  region             = var.proxy.name
  number             = var.proxy.number
  zones              = var.proxy.zones
  subnets            = module.proxy_network.brokers_subnets
  image_id           = var.proxy.image_id
  instance_type      = var.proxy.instance_type
  instance_profile   = module.proxy_iam.instance_profiles["proxy"]
  security_group_ids = [module.proxy_firewall.groups["proxy"]]
  kms_key_arn        = module.proxy_iam.kms_key_arn
  data               = { gb = var.proxy.data_gb }
}

module "peering_first_second" {
  source    = "../peering"
  providers = { aws.near = aws.first, aws.far = aws.second }

  name = "${var.name}-first-second"
  near = module.first.network
  far  = module.second.network
}

module "peering_first_proxy" {
  source    = "../peering"
  providers = { aws.near = aws.first, aws.far = aws.proxy }

  name = "${var.name}-first-proxy"
  near = module.first.network
  far  = local.proxy_network
}

module "peering_second_proxy" {
  source    = "../peering"
  providers = { aws.near = aws.second, aws.far = aws.proxy }

  name = "${var.name}-second-proxy"
  near = module.second.network
  far  = local.proxy_network
}

module "routing" {
  source    = "../routing"
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
      proxy  = { vpc_id = module.proxy_network.vpc_id, aws_region = data.aws_region.proxy.region }
    }
    hosts = { for name, host in local.all_hosts : name => host.address }
  }
}
