mock_provider "aws" {}

variables {
  name = "oregon-store"

  fabric             = "newsfabric"
  region             = "oregon"
  zones              = ["us-west-2a", "us-west-2b", "us-west-2c"]
  subnets            = { us-west-2a = "subnet-a", us-west-2b = "subnet-b", us-west-2c = "subnet-c" }
  image_id           = "ami-0123456789abcdef0"
  instance_profile   = "store"
  security_group_ids = ["sg-store"]
  kms_key_arn        = "arn:aws:kms:us-west-2:123456789012:key/k"
}

run "three_nodes_are_in_three_zones" {
  assert {
    condition     = [for name in sort(keys(output.hosts)) : output.hosts[name].zone] == ["us-west-2a", "us-west-2b", "us-west-2c"]
    error_message = "a zone's loss would take two nodes"
  }
}

run "stores_have_no_public_address" {
  assert {
    condition     = alltrue([for host in values(output.hosts) : host.public_address == null])
    error_message = "a store is reachable from the internet"
  }
}

run "six_nodes_are_two_in_each_zone" {
  variables {
    number = 6
  }

  assert {
    condition     = alltrue([for zone in var.zones : length([for host in values(output.hosts) : host if host.zone == zone]) == 2])
    error_message = "racks have different numbers of nodes"
  }
}

run "two_nodes_are_refused" {
  command = plan

  variables {
    number = 2
  }

  expect_failures = [var.number]
}

run "racks_of_different_sizes_are_refused" {
  command = plan

  variables {
    number = 4
  }

  expect_failures = [var.number]
}

run "a_name_that_is_no_nodes_name_is_refused" {
  command = plan

  variables {
    name = "Oregon Store"
  }

  expect_failures = [var.name]
}
