output "readers_target_group_arns" {
  description = "Target groups for the boxes' autoscaling group; empty with direct addresses."
  value       = aws_lb_target_group.readers[*].arn
}

output "readers" {
  description = "The readers' balancer; null with direct addresses."
  value       = one([for lb in aws_lb.readers : { dns_name = lb.dns_name, zone_id = lb.zone_id }])
}

output "frontdesks" {
  description = "The frontdesks' balancer."
  value       = { dns_name = aws_lb.frontdesks.dns_name, zone_id = aws_lb.frontdesks.zone_id }
}

output "alarm_dimensions" {
  description = "Balancers and target groups as CloudWatch names them."
  value = {
    frontdesks = { LoadBalancer = aws_lb.frontdesks.arn_suffix, TargetGroup = aws_lb_target_group.frontdesks.arn_suffix }
    readers    = one([for n, lb in aws_lb.readers : { LoadBalancer = lb.arn_suffix, TargetGroup = aws_lb_target_group.readers[n].arn_suffix }])
  }
}
