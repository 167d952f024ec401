# The Ansible inventory of permanent machines: named ones, in the groups that deploy/ansible knows. Boxes of the
# autoscaling group are missing: they configure themselves.

locals {
  placed = {
    (var.regions.first.name)  = { aws_region = module.first.aws_region, hosts = module.first.hosts }
    (var.regions.second.name) = { aws_region = module.second.aws_region, hosts = module.second.hosts }
    (var.proxy.name)          = { aws_region = var.proxy.aws_region, hosts = { proxy = module.proxy.hosts } }
  }

  all_hosts = merge(flatten([
    for place in values(local.placed) : [
      for group, hosts in place.hosts : {
        for name, host in hosts : name => merge(host, { group = group, aws_region = place.aws_region })
      }
    ]
  ])...)

  groups = {
    for group in ["client", "core", "store", "retail", "proxy"] : group => {
      hosts = { for name, host in local.all_hosts : name => {} if host.group == group }
    }
  }

  places = {
    for place, each in local.placed : place => {
      hosts = {
        for name, host in merge(values(each.hosts)...) : name => {
          ansible_host            = host.address
          zone                    = host.zone
          ansible_ssh_common_args = "-o ProxyCommand=\"aws ec2-instance-connect open-tunnel --region ${each.aws_region} --instance-id ${host.instance_id}\""
        }
      }
    }
  }
}
