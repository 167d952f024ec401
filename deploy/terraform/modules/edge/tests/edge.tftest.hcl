mock_provider "aws" {
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-west-2:123456789012:loadbalancer/net/l/1" }
  }

  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-west-2:123456789012:targetgroup/t/1" }
  }
}

variables {
  name            = "newsfabric-oregon"
  vpc_id          = "vpc-1"
  subnets         = { us-west-2a = "subnet-a", us-west-2b = "subnet-b", us-west-2c = "subnet-c" }
  groups          = { "frontdesks-door" = "sg-frontdesks", "readers-door" = "sg-readers" }
  certificate_arn = "arn:aws:acm:us-west-2:123456789012:certificate/c"
  frontdesks      = { "oregon-core-1" = "i-1", "oregon-core-2" = "i-2", "oregon-core-3" = "i-3" }
}

run "the_readers_balancer_ends_tls_and_says_who_a_reader_is" {
  assert {
    condition     = aws_lb_listener.readers[0].protocol == "TLS" && aws_lb_listener.readers[0].port == 443 && aws_lb_listener.readers[0].certificate_arn == var.certificate_arn
    error_message = "readers don't get TLS"
  }

  assert {
    condition     = tobool(aws_lb_target_group.readers[0].proxy_protocol_v2) && aws_lb_target_group.readers[0].preserve_client_ip == "false" && aws_lb_target_group.readers[0].protocol == "TCP"
    error_message = "gateways must get the reader's address, in a header that only the balancer can send"
  }
}

run "a_box_that_drains_keeps_its_readers_until_it_has_sent_them_away" {
  variables {
    drain_seconds = 300
  }

  assert {
    condition     = tonumber(aws_lb_target_group.readers[0].deregistration_delay) >= 300 && !tobool(aws_lb_target_group.readers[0].connection_termination)
    error_message = "the balancer cuts readers off in a drain"
  }
}

run "doors_ask_whether_a_process_is_ready" {
  assert {
    condition     = aws_lb_target_group.readers[0].health_check[0].path == "/healthz/ready" && aws_lb_target_group.frontdesks.health_check[0].path == "/healthz/ready"
    error_message = "a box that isn't ready gets readers"
  }
}

run "every_frontdesk_is_behind_the_door" {
  assert {
    condition     = toset([for each in aws_lb_target_group_attachment.frontdesks : each.target_id]) == toset(["i-1", "i-2", "i-3"])
    error_message = "a frontdesk gets no requests"
  }

  assert {
    condition     = aws_lb_listener.frontdesks.protocol == "HTTPS" && aws_lb.frontdesks.drop_invalid_header_fields
    error_message = "frontdesks are asked without TLS, or with forged headers"
  }

  # Ansible's newsfabric_tls: with it, their port speaks TLS alone.
  assert {
    condition     = aws_lb_target_group.frontdesks.protocol == "HTTPS" && aws_lb_target_group.frontdesks.health_check[0].protocol == "HTTPS"
    error_message = "the balancer speaks HTTP to a port of TLS"
  }
}

run "with_direct_addresses_there_is_no_readers_balancer" {
  variables {
    readers_edge = "direct"
    groups       = { "frontdesks-door" = "sg-frontdesks" }
  }

  assert {
    condition     = length(aws_lb.readers) == 0 && length(output.readers_target_group_arns) == 0 && output.readers == null
    error_message = "an unused balancer costs money"
  }
}

run "old_tls_is_refused" {
  command = plan

  variables {
    tls_policy = "ELBSecurityPolicy-2016-08"
  }

  expect_failures = [var.tls_policy]
}

run "one_zone_is_refused" {
  command = plan

  variables {
    subnets = { us-west-2a = "subnet-a" }
  }

  expect_failures = [var.subnets]
}

run "a_drain_longer_than_a_target_group_waits_is_refused" {
  command = plan

  variables {
    drain_seconds = 4000
  }

  expect_failures = [var.drain_seconds]
}

run "another_edge_is_refused" {
  command = plan

  variables {
    readers_edge = "cdn"
  }

  expect_failures = [var.readers_edge]
}

run "a_name_too_long_for_a_balancer_is_refused" {
  command = plan

  variables {
    name = "newsfabric-production-oregon"
  }

  expect_failures = [var.name]
}

run "a_balancer_in_no_group_is_refused" {
  command = plan

  variables {
    groups = { "frontdesks-door" = "sg-frontdesks" }
  }

  expect_failures = [var.groups]
}

run "a_port_that_is_none_is_refused" {
  command = plan

  variables {
    readers_port = 0
  }

  expect_failures = [var.readers_port]
}

run "a_frontdesks_port_that_is_none_is_refused" {
  command = plan

  variables {
    frontdesk_port = 70000
  }

  expect_failures = [var.frontdesk_port]
}
