mock_provider "aws" {}

variables {
  name               = "oregon-core"
  role               = "core"
  fabric             = "newsfabric"
  region             = "oregon"
  number             = 4
  zones              = ["us-west-2a", "us-west-2b", "us-west-2c"]
  subnets            = { us-west-2a = "subnet-a", us-west-2b = "subnet-b", us-west-2c = "subnet-c" }
  image_id           = "ami-0123456789abcdef0"
  instance_type      = "m7i.large"
  instance_profile   = "core"
  security_group_ids = ["sg-core"]
  kms_key_arn        = "arn:aws:kms:us-west-2:123456789012:key/k"
  data               = { gb = 100 }
}

run "they_are_spread_over_the_zones_in_turn" {
  assert {
    condition     = { for name, host in output.hosts : name => host.zone } == { "oregon-core-1" = "us-west-2a", "oregon-core-2" = "us-west-2b", "oregon-core-3" = "us-west-2c", "oregon-core-4" = "us-west-2a" }
    error_message = "zones aren't used in turn"
  }

  assert {
    condition     = alltrue([for name, nic in aws_network_interface.this : nic.subnet_id == var.subnets[output.hosts[name].zone]]) && alltrue([for name, volume in aws_ebs_volume.data : volume.availability_zone == output.hosts[name].zone])
    error_message = "an interface or a volume is in another zone than its machine"
  }
}

run "metadata_needs_a_token" {
  assert {
    condition     = alltrue([for each in aws_instance.this : each.metadata_options[0].http_tokens == "required" && each.metadata_options[0].http_put_response_hop_limit == 1])
    error_message = "IMDSv2 isn't required"
  }
}

run "every_volume_is_encrypted" {
  assert {
    condition     = alltrue([for each in aws_instance.this : each.root_block_device[0].encrypted && each.root_block_device[0].kms_key_id == var.kms_key_arn])
    error_message = "a system's volume isn't encrypted"
  }

  assert {
    condition     = alltrue([for each in aws_ebs_volume.data : each.encrypted && each.kms_key_id == var.kms_key_arn])
    error_message = "a data volume isn't encrypted"
  }
}

run "the_dynamic_inventory_finds_them_by_tags" {
  assert {
    condition     = aws_instance.this["oregon-core-2"].tags == tomap({ Name = "oregon-core-2", Host = "oregon-core-2", Fabric = "newsfabric", Region = "oregon", Role = "core", Zone = "us-west-2b" })
    error_message = "tags differ from those that deploy/ansible/inventories looks for"
  }
}

run "only_who_must_has_a_public_address" {
  assert {
    condition     = length(aws_eip.this) == 0 && output.hosts["oregon-core-1"].public_address == null
    error_message = "a private machine has a public address"
  }
}

run "a_public_machine_has_an_address_that_stays" {
  variables {
    public = true
  }

  assert {
    condition     = alltrue([for name, each in aws_eip.this : each.network_interface == aws_network_interface.this[name].id]) && length(aws_eip.this) == 4
    error_message = "a public address belongs to the machine, not to the interface that outlives it"
  }
}

run "boxes_are_not_made_here" {
  command = plan

  variables {
    role = "retail"
  }

  expect_failures = [var.role]
}

run "a_fraction_of_a_machine_is_refused" {
  command = plan

  variables {
    number = 2.5
  }

  expect_failures = [var.number]
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

run "a_volume_out_of_range_is_refused" {
  command = plan

  variables {
    data = { gb = 5 }
  }

  expect_failures = [var.data]
}

run "operations_that_gp3_doesnt_have_are_refused" {
  command = plan

  variables {
    data = { gb = 100, iops = 100 }
  }

  expect_failures = [var.data]
}

run "a_tiny_system_volume_is_refused" {
  command = plan

  variables {
    root_gb = 4
  }

  expect_failures = [var.root_gb]
}

run "a_zone_without_a_subnet_is_refused" {
  command = plan

  variables {
    zones = ["us-west-2a", "us-west-2d"]
  }

  expect_failures = [var.subnets]
}
