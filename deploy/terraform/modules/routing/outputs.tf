output "frontdesk_urls" {
  description = "Region to its frontdesk's URL: frontdesk_url in fabric.json."
  value       = { for name in keys(var.regions) : name => "https://${name}.${var.domain}" }
}

output "readers_urls" {
  description = "Region to the URL of its readers' balancer: --public-url of its gateways."
  value       = { for name, region in var.regions : name => "https://readers.${name}.${var.domain}" if region.readers != null }
}

output "served" {
  description = "Regions that readers are sent to."
  value       = keys(local.served)
}
