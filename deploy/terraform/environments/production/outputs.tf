output "inventory" {
  description = "Ansible inventory of what stays: terraform output -json inventory > hosts.json"
  value       = module.fabric.inventory
}

output "settings" {
  description = "What Ansible's group_vars must say of this fabric: terraform output -json settings > 25-terraform.json"
  value       = module.fabric.settings
}
