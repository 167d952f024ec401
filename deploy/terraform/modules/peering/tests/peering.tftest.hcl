mock_provider "aws" {
  alias = "near"
}

mock_provider "aws" {
  alias = "far"
}

variables {
  name = "newsfabric-oregon-dublin"
  near = { vpc_id = "vpc-1", cidr = "10.10.0.0/16", route_table_ids = { public = "rtb-1", private = "rtb-2" } }
  far  = { vpc_id = "vpc-2", cidr = "10.11.0.0/16", aws_region = "eu-west-1", route_table_ids = { public = "rtb-3", private = "rtb-4" } }
}

run "every_route_table_leads_to_the_other_network" {
  assert {
    condition     = { for name, route in aws_route.near : route.route_table_id => route.destination_cidr_block } == { "rtb-1" = "10.11.0.0/16", "rtb-2" = "10.11.0.0/16" }
    error_message = "the near network has no route to the far one"
  }

  assert {
    condition     = { for name, route in aws_route.far : route.route_table_id => route.destination_cidr_block } == { "rtb-3" = "10.10.0.0/16", "rtb-4" = "10.10.0.0/16" }
    error_message = "the far network has no route back"
  }
}

run "it_is_accepted_over_there" {
  assert {
    condition     = aws_vpc_peering_connection.this.peer_region == "eu-west-1" && aws_vpc_peering_connection_accepter.this.auto_accept && aws_vpc_peering_connection_accepter.this.vpc_peering_connection_id == aws_vpc_peering_connection.this.id
    error_message = "nobody accepts the peering"
  }
}

run "the_same_addresses_on_both_sides_are_refused" {
  command = plan

  variables {
    far = { vpc_id = "vpc-2", cidr = "10.10.0.0/16", aws_region = "eu-west-1", route_table_ids = {} }
  }

  expect_failures = [var.far]
}
