output "hosts" {
  description = "Name to address, public address (null without one) and zone."
  value       = module.machines.hosts
}
