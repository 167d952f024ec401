output "vpc_id" {
  description = "The network."
  value       = aws_vpc.this.id
}

output "cidr" {
  description = "The network's addresses."
  value       = var.cidr
}

output "zones" {
  description = "The network's zones, in their order."
  value       = var.zones
}

output "edge_subnets" {
  description = "Zone to the subnet of boxes and balancers."
  value       = { for zone, subnet in aws_subnet.edge : zone => subnet.id }
}

output "edge_cidrs" {
  description = "Addresses of boxes and balancers."
  value       = values(local.edge)
}

output "brokers_subnets" {
  description = "Zone to the subnet of brokers and the services beside them."
  value       = { for zone, subnet in aws_subnet.brokers : zone => subnet.id }
}

output "brokers_cidrs" {
  description = "Addresses of brokers and the services beside them."
  value       = values(local.brokers)
}

output "store_subnets" {
  description = "Zone to the subnet of the store."
  value       = { for zone, subnet in aws_subnet.store : zone => subnet.id }
}

output "store_cidrs" {
  description = "Addresses of the store."
  value       = values(local.store)
}

output "route_table_ids" {
  description = "Route tables, for peerings."
  value       = { public = aws_route_table.public.id, private = aws_route_table.private.id }
}

output "ssh_door_id" {
  description = "Security group of ssh."
  value       = aws_security_group.ssh_door.id
}
