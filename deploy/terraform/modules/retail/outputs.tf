output "group_name" {
  description = "The group: --group of the scaler."
  value       = aws_autoscaling_group.this.name
}

output "launch_template_id" {
  description = "The launch template."
  value       = aws_launch_template.this.id
}

output "heartbeat_seconds" {
  description = "Seconds for which the hook waits for a draining box."
  value       = local.heartbeat
}

output "scaler_options" {
  description = "Options of the region's scalers: option, with _ for -, to its value."
  value = {
    driver     = "aws"
    group      = aws_autoscaling_group.this.name
    cloudwatch = var.cloudwatch_namespace
    per_box    = var.readers_per_box
    least      = var.plan.least
    most       = var.plan.most
    boot       = "${var.plan.boot_seconds}s"
    drain      = "${var.plan.drain_seconds}s"
    zones      = length(var.subnets)
  }
}
