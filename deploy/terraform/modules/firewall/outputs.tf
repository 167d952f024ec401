output "groups" {
  description = "Role to security group: client, core, store, retail and the balancers' doors, or proxy."
  value       = { for name, group in aws_security_group.this : name => group.id }
}

output "ports" {
  description = "Ports by their names."
  value       = var.ports
}

output "openings" {
  description = "Open ports: the server, the client, the port, and the reason."
  value       = local.openings
}
