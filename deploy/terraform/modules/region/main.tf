# A whole region: network, brokers, store, boxes, balancers, alarms. Regions are equal; a fabric has two or more.

data "aws_caller_identity" "here" {}
data "aws_region" "here" {}
data "aws_partition" "here" {}

locals {
  name       = "${var.fabric}-${var.region}"
  group_name = "${local.name}-retail"
  inside     = "${var.fabric}.internal"
  hosts      = merge({ for group, brokers in module.brokers : group => brokers.hosts }, { store = module.store.hosts })
  # As Ansible's role wholesale names them: one beside each node of the core. None leads.
  scalers = [for name in sort(keys(local.hosts.core)) : "${name}-scaler"]
}

module "iam" {
  source = "../iam"

  name       = local.name
  roles      = ["client", "core", "store", "retail"]
  group_name = local.group_name
  account_id = data.aws_caller_identity.here.account_id
  aws_region = data.aws_region.here.region
  partition  = data.aws_partition.here.partition
}

module "network" {
  source = "../network"

  name        = local.name
  cidr        = var.cidr
  zones       = var.zones
  kms_key_arn = module.iam.kms_key_arn
}

module "firewall" {
  source = "../firewall"

  name            = local.name
  kind            = "region"
  network         = { vpc_id = module.network.vpc_id, ssh_door_id = module.network.ssh_door_id }
  publisher_cidrs = var.publisher_cidrs
  readers_edge    = var.readers_edge
  far             = var.far
}

module "brokers" {
  source   = "../brokers"
  for_each = { client = var.client, core = var.core }

  role               = each.key
  name               = "${var.region}-${each.key}"
  fabric             = var.fabric
  region             = var.region
  number             = each.value.number
  zones              = var.zones
  subnets            = module.network.brokers_subnets
  image_id           = var.image_id
  instance_type      = each.value.instance_type
  instance_profile   = module.iam.instance_profiles[each.key]
  security_group_ids = [module.firewall.groups[each.key]]
  kms_key_arn        = module.iam.kms_key_arn
  data               = { gb = each.value.data_gb }
}

module "store" {
  source = "../cassandra"

  name               = "${var.region}-store"
  fabric             = var.fabric
  region             = var.region
  number             = var.store.number
  zones              = var.zones
  subnets            = module.network.store_subnets
  image_id           = var.image_id
  instance_type      = var.store.instance_type
  instance_profile   = module.iam.instance_profiles["store"]
  security_group_ids = [module.firewall.groups["store"]]
  kms_key_arn        = module.iam.kms_key_arn
  data               = { gb = var.store.data_gb }
}

module "edge" {
  source = "../edge"

  name                = local.name
  vpc_id              = module.network.vpc_id
  subnets             = module.network.edge_subnets
  readers_edge        = var.readers_edge
  groups              = module.firewall.groups
  certificate_arn     = var.certificate_arn
  frontdesks          = { for name, host in local.hosts.core : name => host.instance_id }
  drain_seconds       = min(var.retail.plan.drain_seconds, 3600)
  deletion_protection = var.deletion_protection
}

module "retail" {
  source = "../retail"

  name                 = local.group_name
  fabric               = var.fabric
  region               = var.region
  subnets              = module.network.edge_subnets
  image_id             = var.image_id
  instance_type        = var.retail.instance_type
  instance_profile_arn = module.iam.instance_profile_arns["retail"]
  security_group_id    = module.firewall.groups["retail"]
  kms_key_arn          = module.iam.kms_key_arn
  target_group_arns    = module.edge.readers_target_group_arns
  readers_per_box      = var.retail.readers_per_box
  plan                 = var.retail.plan
  schedules            = var.retail.schedules
  scalers              = local.scalers
  cloudwatch_namespace = module.iam.cloudwatch_namespace
  box_settings = {
    core  = [for name in sort(keys(local.hosts.core)) : "amqps://${name}.${local.inside}/%2F"]
    store = "cassandra://${join(",", [for name in sort(keys(local.hosts.store)) : "${local.hosts.store[name].address}:${module.firewall.ports.cql}"])}/newsfabric?dc=${var.region}"
    frontdesks = [
      for name in concat([var.region], sort([for name, far in var.far : name if far.kind == "region"])) : "https://${name}.${var.domain}"
    ]
    public_url     = var.readers_edge == "nlb" ? "https://readers.${var.region}.${var.domain}" : var.box_url
    networks       = module.network.brokers_cidrs
    proxy_from     = var.readers_edge == "nlb" ? module.network.edge_cidrs : []
    origins        = var.origins
    token_keys     = var.tokens.keys
    token_audience = var.tokens.audience
    token_issuer   = var.tokens.issuer
    secrets        = module.iam.secret_names
  }
}

module "observability" {
  source = "../observability"

  name                 = local.name
  region               = var.region
  scalers              = local.scalers
  cloudwatch_namespace = module.iam.cloudwatch_namespace
  machines             = { for name, host in merge(values(local.hosts)...) : name => host.instance_id }
  target_groups        = module.edge.alarm_dimensions
  emails               = var.alarm_emails
  kms_key_arn          = module.iam.kms_key_arn
}
