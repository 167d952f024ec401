output "inventory" {
  description = "Ansible inventory of what stays: terraform output -json inventory > hosts.json"
  value       = module.fabric.inventory
}

output "frontdesk_urls" {
  description = "Region to its frontdesk's URL: frontdesk_url in fabric.json."
  value       = module.fabric.frontdesk_urls
}

output "readers_urls" {
  description = "Region to the URL of its readers' balancer: --public-url of its gateways."
  value       = module.fabric.readers_urls
}

output "scaler_options" {
  description = "Region to what its scalers are started with."
  value       = module.fabric.scaler_options
}

output "admission" {
  description = "Region to how its core nodes give boxes their users: newsfabric_admission of Ansible."
  value       = module.fabric.admission
}

output "proxy_from" {
  description = "Region to the networks of its balancers: --proxy-from of gateways and frontdesks."
  value       = module.fabric.proxy_from
}

output "secret_names" {
  description = "Region to its secrets in Secrets Manager: where operators put their values."
  value       = module.fabric.secret_names
}
