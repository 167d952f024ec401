output "groups" {
  description = "Role to security group: client, core, store, retail and the balancers' doors, or proxy."
  value       = { for name, group in aws_security_group.this : name => group.id }
}

output "ports" {
  description = "Ports by their names."
  value       = var.ports
}

output "openings" {
  description = "What is open: to whom, from whom, which port, why."
  value       = local.openings
}
