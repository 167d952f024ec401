output "inventory" {
  description = "Ansible inventory: terraform output -json inventory > hosts.json"
  value       = { all = { children = merge(local.groups, local.places) } }
}

output "settings" {
  description = "Settings of this fabric for Ansible's group_vars: terraform output -json settings > 25-terraform.json"
  value = {
    newsfabric_regions  = [var.regions.first.name, var.regions.second.name]
    newsfabric_proxies  = { (var.proxy.name) = var.proxy.nearest }
    newsfabric_networks = [var.regions.first.cidr, var.regions.second.cidr, var.proxy.cidr]

    # The firewall opens ports of TLS alone, and the balancer speaks it to frontdesks.
    newsfabric_tls = true
    # The model by which lsblk identifies a volume, whatever its name: Ansible's role disk makes a file system on the empty one.
    newsfabric_data_volume    = "Amazon Elastic Block Store"
    newsfabric_frontdesk_urls = module.routing.frontdesk_urls
    newsfabric_gateways_at    = [for url in values(module.routing.readers_urls) : trimprefix(url, "https://")]
    newsfabric_proxy_from     = concat(module.first.proxy_from, module.second.proxy_from)
    newsfabric_origins        = var.origins
    newsfabric_token_keys     = var.tokens.keys
    newsfabric_token_audience = var.tokens.audience
    newsfabric_token_issuer   = var.tokens.issuer

    newsfabric_scaler_options = {
      for region, options in {
        (var.regions.first.name)  = module.first.scaler_options
        (var.regions.second.name) = module.second.scaler_options
      } : region => flatten([for name, value in options : ["--${replace(name, "_", "-")}", tostring(value)]])
    }
    newsfabric_admission = {
      (var.regions.first.name)  = module.first.admission
      (var.regions.second.name) = module.second.admission
    }
  }
}
