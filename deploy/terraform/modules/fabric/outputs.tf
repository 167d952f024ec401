output "inventory" {
  description = "Ansible inventory: terraform output -json inventory > hosts.json"
  value       = { all = { children = merge(local.groups, local.places) } }
}

output "frontdesk_urls" {
  description = "Region to its frontdesk's URL: frontdesk_url in fabric.json."
  value       = module.routing.frontdesk_urls
}

output "readers_urls" {
  description = "Region to the URL of its readers' balancer: --public-url of its gateways."
  value       = module.routing.readers_urls
}

output "scaler_options" {
  description = "Region to what its scalers are started with."
  value = {
    (var.regions.first.name)  = module.first.scaler_options
    (var.regions.second.name) = module.second.scaler_options
  }
}

output "admission" {
  description = "Region to how its core nodes give boxes their users: newsfabric_admission of Ansible."
  value = {
    (var.regions.first.name)  = module.first.admission
    (var.regions.second.name) = module.second.admission
  }
}

output "proxy_from" {
  description = "Region to the networks of its balancers: --proxy-from of gateways and frontdesks."
  value = {
    (var.regions.first.name)  = module.first.proxy_from
    (var.regions.second.name) = module.second.proxy_from
  }
}

output "secret_names" {
  description = "Region to its secrets in Secrets Manager: where operators put their values."
  value = {
    (var.regions.first.name)  = module.first.secret_names
    (var.regions.second.name) = module.second.secret_names
    (var.proxy.name)          = module.proxy_iam.secret_names
  }
}
