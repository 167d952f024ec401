# A region's retail boxes: an autoscaling group over all zones, of the fabric's one image.
#
# The scaler (driver aws) decides. It alone knows which box is empty, so it alone ends boxes. The group protects
# them from scale-in, and every policy here only adds boxes. Policies are the safety net for a scaler that is down
# or whose driver fails. They can't contradict it: it never asks for fewer boxes than it needs.

locals {
  # A box's agent drains within drain_seconds; then the machine still has to stop its services and to report it.
  heartbeat = var.plan.drain_seconds + 60
  hook      = "drain"

  # WantedBoxes of each scaler. Where they differ, the largest number counts, as with the driver.
  wanted     = { for n, scaler in var.scalers : "wanted${n}" => scaler }
  wanted_sum = "MAX([${join(", ", [for id in sort(keys(local.wanted)) : "FILL(${id}, 0)"])}])"
}

resource "aws_launch_template" "this" {
  name                   = var.name
  image_id               = var.image_id
  instance_type          = var.instance_type
  ebs_optimized          = true
  update_default_version = true

  iam_instance_profile {
    arn = var.instance_profile_arn
  }

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
    # Not for processes in a container or behind a proxy on the machine.
    http_put_response_hop_limit = 1
  }

  monitoring {
    enabled = true
  }

  network_interfaces {
    associate_public_ip_address = true
    delete_on_termination       = true
    security_groups             = [var.security_group_id]
  }

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_type           = "gp3"
      volume_size           = var.root_gb
      encrypted             = true
      kms_key_id            = var.kms_key_arn
      delete_on_termination = true
    }
  }

  # No secrets: every process on the machine can read it, and it is in Terraform's state.
  user_data = base64encode(join("\n", ["#cloud-config", yamlencode({
    write_files = [{
      path        = "/etc/newsfabric/instance.json"
      permissions = "0644"
      # operations/instance/description.py reads it.
      content = jsonencode(merge(var.box_settings, {
        role          = "retail"
        region        = var.region
        group         = var.name
        hook          = local.hook
        capacity      = var.readers_per_box
        drain_seconds = var.plan.drain_seconds
      }))
    }]
  })]))
}

resource "aws_autoscaling_group" "this" {
  name                = var.name
  min_size            = var.plan.least
  max_size            = var.plan.most
  vpc_zone_identifier = values(var.subnets)
  target_group_arns   = var.target_group_arns

  # AWS ends no box of its own accord.
  protect_from_scale_in = true
  suspended_processes   = ["AZRebalance"]

  health_check_type         = "EC2"
  health_check_grace_period = var.plan.boot_seconds
  default_instance_warmup   = var.plan.boot_seconds
  wait_for_capacity_timeout = "0"

  enabled_metrics = ["GroupDesiredCapacity", "GroupInServiceInstances", "GroupPendingInstances", "GroupTerminatingInstances"]

  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }

  # From the machine's first second, so that no box ever lacks it.
  initial_lifecycle_hook {
    name                 = local.hook
    lifecycle_transition = "autoscaling:EC2_INSTANCE_TERMINATING"
    heartbeat_timeout    = local.heartbeat
    # AWS ends a box that doesn't answer after all.
    default_result = "CONTINUE"
  }

  # A new image: boxes are replaced a few at a time, each new one ready before an old one drains.
  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage       = 100
      max_healthy_percentage       = 110
      instance_warmup              = tostring(var.plan.boot_seconds)
      scale_in_protected_instances = "Refresh"
      skip_matching                = true
      auto_rollback                = true
    }
  }

  dynamic "tag" {
    for_each = {
      Name   = var.name
      Fabric = var.fabric
      Region = var.region
      Role   = "retail"
    }

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  lifecycle {
    # The scaler changes it all day.
    ignore_changes = [desired_capacity]
  }
}

# The scaler's own metric, the number of boxes that it wants: WantedBoxes for each box of the group should be 1.
resource "aws_autoscaling_policy" "wanted" {
  name                      = "wanted-boxes"
  autoscaling_group_name    = aws_autoscaling_group.this.name
  policy_type               = "TargetTrackingScaling"
  estimated_instance_warmup = var.plan.boot_seconds

  target_tracking_configuration {
    target_value     = 1
    disable_scale_in = true

    customized_metric_specification {
      dynamic "metrics" {
        for_each = local.wanted

        content {
          id          = metrics.key
          return_data = false

          metric_stat {
            stat = "Maximum"

            metric {
              namespace   = var.cloudwatch_namespace
              metric_name = "WantedBoxes"

              dimensions {
                name  = "Region"
                value = var.region
              }

              dimensions {
                name  = "Scaler"
                value = metrics.value
              }
            }
          }
        }
      }

      metrics {
        id          = "boxes"
        return_data = false

        metric_stat {
          stat = "Average"

          metric {
            namespace   = "AWS/AutoScaling"
            metric_name = "GroupDesiredCapacity"

            dimensions {
              name  = "AutoScalingGroupName"
              value = aws_autoscaling_group.this.name
            }
          }
        }
      }

      metrics {
        id          = "ratio"
        expression  = "${local.wanted_sum} / boxes"
        label       = "boxes wanted for each there is"
        return_data = true
      }
    }
  }
}

# Scalers may both be down, or wrong: busy boxes get help without them.
resource "aws_autoscaling_policy" "busy" {
  name                      = "busy"
  autoscaling_group_name    = aws_autoscaling_group.this.name
  policy_type               = "StepScaling"
  adjustment_type           = "PercentChangeInCapacity"
  min_adjustment_magnitude  = 1
  metric_aggregation_type   = "Average"
  estimated_instance_warmup = var.plan.boot_seconds

  step_adjustment {
    metric_interval_lower_bound = 0
    metric_interval_upper_bound = 15
    scaling_adjustment          = 20
  }

  step_adjustment {
    metric_interval_lower_bound = 15
    scaling_adjustment          = 50
  }
}

resource "aws_cloudwatch_metric_alarm" "busy" {
  alarm_name          = "${var.name}-busy"
  alarm_description   = "Boxes are busy: the group's safety net adds some. Are the scalers well?"
  namespace           = "AWS/EC2"
  metric_name         = "CPUUtilization"
  dimensions          = { AutoScalingGroupName = aws_autoscaling_group.this.name }
  statistic           = "Average"
  period              = 60
  evaluation_periods  = 3
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = var.busy_percent
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_autoscaling_policy.busy.arn]
}

# Raises the minimum, so that boxes are ready before a crowd arrives. At the end the minimum is lowered again, which ends no box.
resource "aws_autoscaling_schedule" "begins" {
  for_each = var.schedules

  scheduled_action_name  = "${each.key}-begins"
  autoscaling_group_name = aws_autoscaling_group.this.name
  recurrence             = each.value.begins
  time_zone              = "Etc/UTC"
  min_size               = each.value.least
  max_size               = -1
  desired_capacity       = -1
}

resource "aws_autoscaling_schedule" "ends" {
  for_each = var.schedules

  scheduled_action_name  = "${each.key}-ends"
  autoscaling_group_name = aws_autoscaling_group.this.name
  recurrence             = each.value.ends
  time_zone              = "Etc/UTC"
  min_size               = var.plan.least
  max_size               = -1
  desired_capacity       = -1
}
