# Faults that AWS can see and Prometheus can't: a lost machine, a silent scaler, a balancer without healthy
# targets. Prometheus has the alarms about the fabric itself (deploy/observability).

resource "aws_sns_topic" "alarms" {
  name              = "${var.name}-alarms"
  kms_master_key_id = var.kms_key_arn
}

resource "aws_sns_topic_subscription" "emails" {
  for_each = var.emails

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.key
}

locals {
  # Values in a scaler's own metrics from which an operator must look.
  watched_metrics = {
    DriverFailing = { threshold = 1, minutes = 5, why = "its driver fails: boxes are neither made nor ended" }
    Limited       = { threshold = 1, minutes = 5, why = "more boxes are needed than there may be: readers may be refused" }
    SilentBoxes   = { threshold = 1, minutes = 10, why = "a box that had readers fell silent, and nobody ends it: look at /scale" }
    FailedBoxes   = { threshold = 2, minutes = 10, why = "boxes never become ready: look at the image" }
  }
  watched = merge([for scaler in var.scalers : { for name, each in local.watched_metrics : "${scaler}-${name}" => merge(each, { scaler = scaler, metric = name }) }]...)

  doors = { for door, dimensions in var.target_groups : door => dimensions if dimensions != null }
}

resource "aws_cloudwatch_metric_alarm" "scalers" {
  for_each = local.watched

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.scaler}: ${each.value.why}"
  namespace           = var.cloudwatch_namespace
  metric_name         = each.value.metric
  dimensions          = { Region = var.region, Scaler = each.value.scaler }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = each.value.minutes
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = each.value.threshold
  # A scaler's silence is another alarm.
  treat_missing_data = "notBreaching"
  alarm_actions      = [aws_sns_topic.alarms.arn]
  ok_actions         = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "silent_scaler" {
  for_each = toset(var.scalers)

  alarm_name          = "${var.name}-${each.key}-silent"
  alarm_description   = "${each.key} has sent no metrics for five minutes: boxes stay as they are, but for the safety net"
  namespace           = var.cloudwatch_namespace
  metric_name         = "WantedBoxes"
  dimensions          = { Region = var.region, Scaler = each.key }
  statistic           = "SampleCount"
  period              = 60
  evaluation_periods  = 5
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "machines" {
  for_each = var.machines

  alarm_name          = "${var.name}-${each.key}-machine"
  alarm_description   = "${each.key}: AWS finds its machine broken; replace-core-node.yml or replace-store-node.yml"
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed"
  dimensions          = { InstanceId = each.value }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 1
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "doors" {
  for_each = local.doors

  alarm_name          = "${var.name}-${each.key}-door"
  alarm_description   = "${each.key}: nobody healthy stands behind this door"
  namespace           = each.key == "readers" ? "AWS/NetworkELB" : "AWS/ApplicationELB"
  metric_name         = "HealthyHostCount"
  dimensions          = each.value
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 2
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}
