output "readers_target_group_arns" {
  description = "Target groups for the boxes' autoscaling group; empty with direct addresses."
  value       = aws_lb_target_group.readers[*].arn
}

output "readers" {
  description = "The readers' balancer; null with direct addresses."
  value       = one([for lb in aws_lb.readers : { dns_name = lb.dns_name, zone_id = lb.zone_id }])
}

output "desks" {
  description = "The frontdesks' balancer."
  value       = { dns_name = aws_lb.desks.dns_name, zone_id = aws_lb.desks.zone_id }
}

output "alarm_dimensions" {
  description = "Balancers and target groups as CloudWatch names them."
  value = {
    desks   = { LoadBalancer = aws_lb.desks.arn_suffix, TargetGroup = aws_lb_target_group.desks.arn_suffix }
    readers = one([for n, lb in aws_lb.readers : { LoadBalancer = lb.arn_suffix, TargetGroup = aws_lb_target_group.readers[n].arn_suffix }])
  }
}
