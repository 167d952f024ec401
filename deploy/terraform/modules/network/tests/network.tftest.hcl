mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "us-west-2" }
  }

  # Mocked ids may be the same: these are distinct.
  override_resource {
    target = aws_route_table.public
    values = { id = "rtb-public" }
  }

  override_resource {
    target = aws_route_table.private
    values = { id = "rtb-private" }
  }

  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/flow" }
  }

  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:us-west-2:123456789012:log-group:flow" }
  }
}

variables {
  name        = "newsfabric-oregon"
  cidr        = "10.10.0.0/16"
  zones       = ["us-west-2a", "us-west-2b", "us-west-2c"]
  kms_key_arn = "arn:aws:kms:us-west-2:123456789012:key/k"
}

run "each_zone_has_three_subnets" {
  assert {
    condition = alltrue([
      for zone in var.zones : aws_subnet.edge[zone].availability_zone == zone && aws_subnet.brokers[zone].availability_zone == zone && aws_subnet.store[zone].availability_zone == zone
    ])
    error_message = "a zone lacks a subnet"
  }

  assert {
    condition     = length(aws_subnet.edge) == 3 && length(aws_subnet.brokers) == 3 && length(aws_subnet.store) == 3
    error_message = "there are other subnets than three a zone"
  }

  assert {
    condition     = join(" ", output.edge_cidrs) == "10.10.0.0/20 10.10.16.0/20 10.10.32.0/20"
    error_message = "the edge's subnets have wrong addresses"
  }

  assert {
    condition     = join(" ", output.brokers_cidrs) == "10.10.224.0/24 10.10.225.0/24 10.10.226.0/24" && join(" ", output.store_cidrs) == "10.10.240.0/24 10.10.241.0/24 10.10.242.0/24"
    error_message = "brokers' or the store's subnets have wrong addresses"
  }
}

run "the_store_has_no_way_to_the_internet" {
  assert {
    condition     = alltrue([for association in aws_route_table_association.store : association.route_table_id == "rtb-private"])
    error_message = "a subnet of the store isn't in the private route table"
  }

  assert {
    condition     = aws_route.internet.route_table_id == "rtb-public" && aws_route.internet.gateway_id == aws_internet_gateway.this.id
    error_message = "the public route table has no route through the internet gateway, or another table has one"
  }
}

run "ssh_comes_through_the_endpoint_alone" {
  assert {
    condition     = aws_vpc_security_group_egress_rule.ssh_door.from_port == 22 && aws_vpc_security_group_egress_rule.ssh_door.to_port == 22 && aws_vpc_security_group_egress_rule.ssh_door.cidr_ipv4 == var.cidr
    error_message = "the ssh endpoint reaches more than port 22 of this network"
  }
}

run "the_smallest_network_has_room" {
  variables {
    cidr = "10.10.0.0/20"
  }

  assert {
    condition     = join(" ", output.store_cidrs) == "10.10.15.0/28 10.10.15.16/28 10.10.15.32/28"
    error_message = "subnets of a /20 must be /28, the smallest that AWS allows"
  }
}

run "a_network_that_is_too_small_is_refused" {
  command = plan

  variables {
    cidr = "10.10.0.0/24"
  }

  expect_failures = [var.cidr]
}

run "what_is_no_network_is_refused" {
  command = plan

  variables {
    cidr = "10.10.0.0"
  }

  expect_failures = [var.cidr]
}

run "the_same_zone_twice_is_refused" {
  command = plan

  variables {
    zones = ["us-west-2a", "us-west-2a", "us-west-2b"]
  }

  expect_failures = [var.zones]
}

run "an_unknown_service_is_refused" {
  command = plan

  variables {
    endpoints = ["telepathy"]
  }

  expect_failures = [var.endpoints]
}

run "a_name_too_long_for_a_balancer_is_refused" {
  command = plan

  variables {
    name = "newsfabric-production-oregon"
  }

  expect_failures = [var.name]
}

run "days_that_cloudwatch_doesnt_have_are_refused" {
  command = plan

  variables {
    flow_log_days = 31
  }

  expect_failures = [var.flow_log_days]
}
