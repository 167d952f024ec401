output "hosts" {
  description = "Group of the inventory to its hosts. Boxes come and go, and are in none."
  value       = local.hosts
}

output "aws_region" {
  description = "The AWS region."
  value       = data.aws_region.here.region
}

output "network" {
  description = "The network, for peerings and for the other regions' firewalls."
  value = {
    vpc_id          = module.network.vpc_id
    cidr            = module.network.cidr
    aws_region      = data.aws_region.here.region
    route_table_ids = module.network.route_table_ids
  }
}

output "tiers" {
  description = "Addresses of each tier, for other regions' firewalls (far)."
  value = {
    kind    = "region"
    edge    = module.network.edge_cidrs
    brokers = module.network.brokers_cidrs
    store   = module.network.store_cidrs
  }
}

output "doors" {
  description = "Balancers, for module routing."
  value       = { frontdesks = module.edge.frontdesks, readers = module.edge.readers }
}

output "scaler_options" {
  description = "Options of the region's scalers: option, with _ for -, to its value."
  value       = merge(module.retail.scaler_options, { aws_region = data.aws_region.here.region })
}

output "admission" {
  description = "The value of Ansible's newsfabric_admission for this region, with which core nodes make boxes' users."
  value = {
    group      = local.group_name
    secrets    = module.iam.secret_names
    aws_region = data.aws_region.here.region
    account    = data.aws_caller_identity.here.account_id
    partition  = data.aws_partition.here.partition
    key        = module.iam.kms_key_arn
  }
}

output "proxy_from" {
  description = "Networks of the balancers: --proxy-from of gateways and frontdesks (Ansible's newsfabric_proxy_from)."
  value       = module.network.edge_cidrs
}

output "openings" {
  description = "Open ports: the server, the client, the port, and the reason."
  value       = module.firewall.openings
}
