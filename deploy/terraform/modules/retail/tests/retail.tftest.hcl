mock_provider "aws" {
  override_resource {
    target = aws_autoscaling_policy.busy
    values = { arn = "arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:busy" }
  }
}

variables {
  cloudwatch_namespace = "newsfabric"
  name                 = "newsfabric-oregon-retail"
  fabric               = "newsfabric"
  region               = "oregon"
  subnets              = { us-west-2a = "subnet-a", us-west-2b = "subnet-b", us-west-2c = "subnet-c" }
  image_id             = "ami-0123456789abcdef0"
  instance_profile_arn = "arn:aws:iam::123456789012:instance-profile/retail"
  security_group_id    = "sg-retail"
  kms_key_arn          = "arn:aws:kms:us-west-2:123456789012:key/k"
  scalers              = ["oregon-core-1-scaler", "oregon-core-2-scaler"]
  box_settings = {
    core       = ["amqps://oregon-core-1.newsfabric.internal/%2F"]
    store      = "cassandra://10.10.1.7:9042/newsfabric?dc=oregon"
    frontdesks = ["https://oregon.news.example.com", "https://dublin.news.example.com"]
    public_url = "https://readers.oregon.news.example.com"
    networks   = ["10.10.48.0/20"]
    proxy_from = ["10.10.0.0/20"]
    secrets    = { tls = "newsfabric-oregon/tls/retail", store = "newsfabric-oregon/store/reader", boxes = "newsfabric-oregon/box/" }
  }
}

run "the_group_is_in_all_zones" {
  assert {
    condition     = toset(aws_autoscaling_group.this.vpc_zone_identifier) == toset(["subnet-a", "subnet-b", "subnet-c"])
    error_message = "a zone has no boxes"
  }
}

run "the_hook_waits_longer_than_a_drain" {
  assert {
    condition     = one([for hook in aws_autoscaling_group.this.initial_lifecycle_hook : hook.heartbeat_timeout if hook.lifecycle_transition == "autoscaling:EC2_INSTANCE_TERMINATING"]) > var.plan.drain_seconds
    error_message = "AWS would end a box before it has drained"
  }

  assert {
    condition     = one([for hook in aws_autoscaling_group.this.initial_lifecycle_hook : hook.default_result if hook.lifecycle_transition == "autoscaling:EC2_INSTANCE_TERMINATING"]) == "CONTINUE"
    error_message = "AWS must end a box that doesn't answer"
  }
}

run "the_hook_waits_for_the_longest_drain_too" {
  variables {
    plan = { drain_seconds = 7080 }
  }

  assert {
    condition     = one([for hook in aws_autoscaling_group.this.initial_lifecycle_hook : hook.heartbeat_timeout if hook.name == "drain"]) > 7080 && one([for hook in aws_autoscaling_group.this.initial_lifecycle_hook : hook.heartbeat_timeout if hook.name == "drain"]) <= 7200
    error_message = "the hook is shorter than the drain, or longer than AWS allows"
  }
}

run "aws_ends_no_box_on_its_own_account" {
  assert {
    condition     = aws_autoscaling_group.this.protect_from_scale_in && contains(aws_autoscaling_group.this.suspended_processes, "AZRebalance")
    error_message = "docs/scaling.md: instances are protected from scale-in"
  }

  assert {
    condition     = aws_autoscaling_policy.wanted.target_tracking_configuration[0].disable_scale_in
    error_message = "a policy would end boxes that aren't empty"
  }

  assert {
    condition     = alltrue([for step in aws_autoscaling_policy.busy.step_adjustment : step.scaling_adjustment > 0])
    error_message = "the safety net removes boxes"
  }
}

run "the_target_is_the_scalers_own_metric" {
  assert {
    condition = toset([
      for query in aws_autoscaling_policy.wanted.target_tracking_configuration[0].customized_metric_specification[0].metrics :
      join(" ", [for dimension in query.metric_stat[0].metric[0].dimensions : "${dimension.name}=${dimension.value}"]) if try(query.metric_stat[0].metric[0].metric_name, "") == "WantedBoxes"
    ]) == toset(["Region=oregon Scaler=oregon-core-1-scaler", "Region=oregon Scaler=oregon-core-2-scaler"])
    error_message = "the dimensions differ from those of WantedBoxes in wholesale/scaler/drivers/cloudwatch.py"
  }

  assert {
    condition     = one([for query in aws_autoscaling_policy.wanted.target_tracking_configuration[0].customized_metric_specification[0].metrics : query.expression if query.return_data]) == "MAX([FILL(wanted0, 0), FILL(wanted1, 0)]) / boxes"
    error_message = "the largest number of the scalers must count"
  }

  assert {
    condition     = aws_autoscaling_policy.wanted.target_tracking_configuration[0].target_value == 1
    error_message = "as many boxes as the scaler wants: a ratio of 1"
  }
}

run "who_is_busy_gets_help_without_a_scaler" {
  assert {
    condition     = aws_cloudwatch_metric_alarm.busy.threshold == 60 && one(aws_cloudwatch_metric_alarm.busy.alarm_actions) == "arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:busy" && aws_cloudwatch_metric_alarm.busy.metric_name == "CPUUtilization"
    error_message = "busy boxes change no policy"
  }
}

run "boxes_stand_before_a_crowd_comes" {
  variables {
    schedules = { election = { least = 40, begins = "0 17 3 11 *", ends = "0 9 4 11 *" } }
  }

  assert {
    condition     = aws_autoscaling_schedule.begins["election"].min_size == 40 && aws_autoscaling_schedule.begins["election"].desired_capacity == -1
    error_message = "a schedule must raise the minimum and nothing else"
  }

  assert {
    condition     = aws_autoscaling_schedule.ends["election"].min_size == var.plan.least && aws_autoscaling_schedule.ends["election"].desired_capacity == -1
    error_message = "the end of a schedule must end no box"
  }
}

run "a_refresh_has_the_new_box_ready_before_the_old_one_goes" {
  assert {
    condition     = aws_autoscaling_group.this.instance_refresh[0].preferences[0].min_healthy_percentage == 100 && aws_autoscaling_group.this.instance_refresh[0].preferences[0].max_healthy_percentage > 100
    error_message = "a refresh first removes boxes"
  }

  assert {
    condition     = aws_autoscaling_group.this.instance_refresh[0].preferences[0].scale_in_protected_instances == "Refresh"
    error_message = "all boxes are protected from scale-in: a refresh would wait for ever"
  }
}

run "metadata_needs_a_token_and_volumes_are_encrypted" {
  assert {
    condition     = aws_launch_template.this.metadata_options[0].http_tokens == "required" && aws_launch_template.this.metadata_options[0].http_put_response_hop_limit == 1
    error_message = "IMDSv2 isn't required"
  }

  assert {
    condition     = alltrue([for device in aws_launch_template.this.block_device_mappings : tobool(device.ebs[0].encrypted) && device.ebs[0].kms_key_id == var.kms_key_arn])
    error_message = "a box's volume isn't encrypted"
  }
}

run "a_box_has_an_address_of_its_own_and_is_given_no_secret" {
  assert {
    condition     = tobool(aws_launch_template.this.network_interfaces[0].associate_public_ip_address)
    error_message = "there is no NAT: a box needs an address"
  }

  assert {
    condition     = !can(regex("(?i)password|cookie|private key|://[^/]*@", base64decode(aws_launch_template.this.user_data))) && jsondecode(yamldecode(base64decode(aws_launch_template.this.user_data)).write_files[0].content).secrets == var.box_settings.secrets
    error_message = "every process on the machine can read user data, and it is in the state"
  }

  assert {
    condition     = jsondecode(yamldecode(base64decode(aws_launch_template.this.user_data)).write_files[0].content).capacity == var.readers_per_box
    error_message = "a box doesn't know its number of readers"
  }
}

run "a_box_is_given_all_that_it_reads_at_its_boot" {
  assert {
    condition = toset(keys(jsondecode(yamldecode(base64decode(aws_launch_template.this.user_data)).write_files[0].content))) == toset([
      "capacity", "core", "drain_seconds", "frontdesks", "group", "hook", "networks", "origins", "proxy_from", "public_url", "region", "role", "secrets", "store",
      "token_audience", "token_issuer", "token_keys",
    ])
    error_message = "the fields differ from those that operations/instance/description.py reads"
  }

  assert {
    condition     = jsondecode(yamldecode(base64decode(aws_launch_template.this.user_data)).write_files[0].content).hook == one([for hook in aws_autoscaling_group.this.initial_lifecycle_hook : hook.name])
    error_message = "a box would answer another hook"
  }
}

run "a_login_in_user_data_is_refused" {
  command = plan

  variables {
    box_settings = {
      core       = ["amqps://me:secret@oregon-core-1.newsfabric.internal/%2F"]
      store      = "cassandra://10.10.1.7:9042/newsfabric?dc=oregon"
      frontdesks = ["https://oregon.news.example.com"]
      public_url = "https://readers.oregon.news.example.com"
      networks   = []
      proxy_from = []
      secrets    = { tls = "t", store = "s", boxes = "b" }
    }
  }

  expect_failures = [var.box_settings]
}

run "the_dynamic_inventory_finds_boxes_by_tags" {
  assert {
    condition     = { for tag in aws_autoscaling_group.this.tag : tag.key => tag.value if tag.propagate_at_launch } == { Name = "newsfabric-oregon-retail", Fabric = "newsfabric", Region = "oregon", Role = "retail" }
    error_message = "tags differ from those that deploy/ansible/inventories looks for"
  }
}

run "scalers_are_given_the_same_as_the_group" {
  variables {
    plan = { least = 5, most = 50, boot_seconds = 90, drain_seconds = 60 }
  }

  assert {
    condition     = output.scaler_options.group == aws_autoscaling_group.this.name && output.scaler_options.least == aws_autoscaling_group.this.min_size && output.scaler_options.most == aws_autoscaling_group.this.max_size && output.scaler_options.zones == 3
    error_message = "a scaler and its group would have different limits"
  }
}

run "more_than_a_scaler_follows_is_refused" {
  command = plan

  variables {
    plan = { most = 1001 }
  }

  expect_failures = [var.plan]
}

run "fewer_at_most_than_at_least_is_refused" {
  command = plan

  variables {
    plan = { least = 10, most = 5 }
  }

  expect_failures = [var.plan]
}

run "a_drain_longer_than_a_hook_is_refused" {
  command = plan

  variables {
    plan = { drain_seconds = 7200 }
  }

  expect_failures = [var.plan]
}

run "a_boot_of_a_second_is_refused" {
  command = plan

  variables {
    plan = { boot_seconds = 1 }
  }

  expect_failures = [var.plan]
}

run "more_connections_than_a_balancer_makes_to_a_box_are_refused" {
  command = plan

  variables {
    target_group_arns = ["arn:aws:elasticloadbalancing:us-west-2:123456789012:targetgroup/t/1"]
    readers_per_box   = 100000
  }

  expect_failures = [var.readers_per_box]
}

run "no_scaler_is_refused" {
  command = plan

  variables {
    scalers = []
  }

  expect_failures = [var.scalers]
}

run "a_schedule_beyond_the_most_is_refused" {
  command = plan

  variables {
    schedules = { election = { least = 500, begins = "0 17 3 11 *", ends = "0 9 4 11 *" } }
  }

  expect_failures = [var.schedules]
}

run "a_time_that_is_none_is_refused" {
  command = plan

  variables {
    schedules = { election = { least = 10, begins = "in the evening", ends = "0 9 4 11 *" } }
  }

  expect_failures = [var.schedules]
}

run "help_for_the_idle_is_refused" {
  command = plan

  variables {
    busy_percent = 5
  }

  expect_failures = [var.busy_percent]
}

run "an_image_that_is_none_is_refused" {
  command = plan

  variables {
    image_id = "debian-13"
  }

  expect_failures = [var.image_id]
}

run "a_type_that_is_none_is_refused" {
  command = plan

  variables {
    instance_type = "large"
  }

  expect_failures = [var.instance_type]
}

run "a_tiny_volume_is_refused" {
  command = plan

  variables {
    root_gb = 4
  }

  expect_failures = [var.root_gb]
}

run "a_name_with_capitals_is_refused" {
  command = plan

  variables {
    name = "Oregon"
  }

  expect_failures = [var.name]
}
