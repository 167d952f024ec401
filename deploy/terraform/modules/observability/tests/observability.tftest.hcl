mock_provider "aws" {
  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:us-west-2:123456789012:alarms" }
  }
}

variables {
  cloudwatch_namespace = "newsfabric"
  name                 = "newsfabric-oregon"
  region               = "oregon"
  scalers              = ["oregon-core-1-scaler", "oregon-core-2-scaler"]
  machines             = { "oregon-core-1" = "i-1", "oregon-store-1" = "i-2" }
  target_groups        = { frontdesks = { LoadBalancer = "app/d/1", TargetGroup = "targetgroup/d/1" }, readers = null }
  emails               = ["desk@example.com"]
  kms_key_arn          = "arn:aws:kms:us-west-2:123456789012:key/k"
}

run "a_scaler_that_says_nothing_is_an_alarm" {
  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.silent_scaler : alarm.treat_missing_data == "breaching" && alarm.metric_name == "WantedBoxes" && one(alarm.alarm_actions) == aws_sns_topic.alarms.arn]) && length(aws_cloudwatch_metric_alarm.silent_scaler) == 2
    error_message = "a scaler could be silent unseen"
  }
}

run "what_a_scaler_says_of_its_trouble_is_an_alarm_of_each" {
  assert {
    condition     = join(" ", keys(aws_cloudwatch_metric_alarm.scalers)) == "oregon-core-1-scaler-DriverFailing oregon-core-1-scaler-FailedBoxes oregon-core-1-scaler-Limited oregon-core-1-scaler-SilentBoxes oregon-core-2-scaler-DriverFailing oregon-core-2-scaler-FailedBoxes oregon-core-2-scaler-Limited oregon-core-2-scaler-SilentBoxes"
    error_message = "the metrics differ from those of wholesale/scaler/drivers/cloudwatch.py"
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.scalers["oregon-core-2-scaler-Limited"].dimensions == tomap({ Region = "oregon", Scaler = "oregon-core-2-scaler" })
    error_message = "the dimensions differ from those of wholesale/scaler/drivers/cloudwatch.py"
  }
}

run "a_machine_that_is_gone_is_an_alarm" {
  assert {
    condition     = { for name, alarm in aws_cloudwatch_metric_alarm.machines : name => alarm.dimensions["InstanceId"] } == { "oregon-core-1" = "i-1", "oregon-store-1" = "i-2" }
    error_message = "a machine has no alarm"
  }

  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.machines : alarm.treat_missing_data == "breaching"])
    error_message = "a lost machine sends no metrics, which must be an alarm"
  }
}

run "only_doors_that_are_there_have_an_alarm" {
  assert {
    condition     = join(" ", keys(aws_cloudwatch_metric_alarm.doors)) == "frontdesks" && aws_cloudwatch_metric_alarm.doors["frontdesks"].namespace == "AWS/ApplicationELB"
    error_message = "an entrance without a balancer has an alarm, or the other one has none"
  }
}

run "an_address_that_is_none_is_refused" {
  command = plan

  variables {
    emails = ["desk"]
  }

  expect_failures = [var.emails]
}

run "no_scaler_is_refused" {
  command = plan

  variables {
    scalers = []
  }

  expect_failures = [var.scalers]
}
