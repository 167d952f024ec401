mock_provider "aws" {}

variables {
  name               = "oregon-core"
  role               = "core"
  fabric             = "newsfabric"
  region             = "oregon"
  zones              = ["us-west-2a", "us-west-2b", "us-west-2c"]
  subnets            = { us-west-2a = "subnet-a", us-west-2b = "subnet-b", us-west-2c = "subnet-c" }
  image_id           = "ami-0123456789abcdef0"
  instance_profile   = "core"
  security_group_ids = ["sg-core"]
  kms_key_arn        = "arn:aws:kms:us-west-2:123456789012:key/k"
}

run "three_nodes_are_in_three_zones" {
  assert {
    condition     = [for name in sort(keys(output.hosts)) : output.hosts[name].zone] == ["us-west-2a", "us-west-2b", "us-west-2c"]
    error_message = "a zone's loss would take two nodes"
  }
}

run "brokers_have_public_addresses" {
  assert {
    condition     = alltrue([for host in values(output.hosts) : host.public_address != null])
    error_message = "there is no NAT: a broker without a public address reaches nothing, and publishers don't reach it"
  }
}

run "two_stand_side_by_side_as_well_as_three" {
  command = plan

  variables {
    number = 2
  }

  assert {
    condition     = length(output.hosts) == 2
    error_message = "brokers have no majority to keep, so an even number is as good as an odd one"
  }
}

run "none_is_refused" {
  command = plan

  variables {
    number = 0
  }

  expect_failures = [var.number]
}

run "another_role_is_refused" {
  command = plan

  variables {
    role = "store"
  }

  expect_failures = [var.role]
}

run "a_name_that_is_no_nodes_name_is_refused" {
  command = plan

  variables {
    name = "Oregon Core"
  }

  expect_failures = [var.name]
}
