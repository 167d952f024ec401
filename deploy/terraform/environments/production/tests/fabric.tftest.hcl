# The files of environments, with the test's own values. One mock stands for all three providers; only data that differs by region is
# given for each.

mock_provider "aws" {
  alias = "any"

  mock_data "aws_region" {
    defaults = { region = "us-west-2" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }

  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:us-west-2:123456789012:key/k" }
  }

  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/r" }
  }

  mock_resource "aws_iam_instance_profile" {
    defaults = { arn = "arn:aws:iam::123456789012:instance-profile/p" }
  }

  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:us-west-2:123456789012:log-group:flow" }
  }

  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-west-2:123456789012:loadbalancer/net/l/1" }
  }

  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-west-2:123456789012:targetgroup/t/1" }
  }

  mock_resource "aws_autoscaling_policy" {
    defaults = { arn = "arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:p" }
  }

  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:us-west-2:123456789012:alarms" }
  }
}

override_data {
  target = module.second.data.aws_region.here
  values = { region = "eu-west-1" }
}

variables {
  name    = "newsfabric"
  domain  = "news.example.com"
  zone_id = "Z0123456789ABCDEFGHIJ"
  regions = {
    first = {
      name       = "oregon"
      aws_region = "us-west-2"
      cidr       = "10.10.0.0/16"
      zones      = ["us-west-2a", "us-west-2b", "us-west-2c"]
    }
    second = {
      name       = "dublin"
      aws_region = "eu-west-1"
      cidr       = "10.11.0.0/16"
      zones      = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    }
  }
  proxy = {
    name       = "singapore"
    aws_region = "ap-southeast-1"
    nearest    = "oregon"
    cidr       = "10.12.0.0/16"
    zones      = ["ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"]
  }
  images = {
    oregon    = "ami-0123456789abcdef0"
    dublin    = "ami-0123456789abcdef1"
    singapore = "ami-0123456789abcdef2"
  }
  certificates = {
    oregon = "arn:aws:acm:us-west-2:123456789012:certificate/c"
    dublin = "arn:aws:acm:eu-west-1:123456789012:certificate/c"
  }
  publisher_cidrs = ["203.0.113.0/24"]
  # An environment's own values are in environment.auto.tfvars.
  client = {}
  core   = {}
  store  = {}
  retail = {}
}

run "the_inventory_has_ansibles_groups_and_one_for_each_region" {
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  assert {
    condition     = join(" ", keys(output.inventory.all.children)) == "client core dublin oregon proxy retail singapore store"
    error_message = "deploy/ansible knows other groups"
  }

  assert {
    condition     = join(" ", keys(output.inventory.all.children.core.hosts)) == "dublin-core-1 dublin-core-2 dublin-core-3 oregon-core-1 oregon-core-2 oregon-core-3"
    error_message = "a core node is missing, or another machine is taken for one"
  }

  assert {
    condition     = join(" ", keys(output.inventory.all.children.oregon.hosts)) == "oregon-client-1 oregon-core-1 oregon-core-2 oregon-core-3 oregon-store-1 oregon-store-2 oregon-store-3" && join(" ", keys(output.inventory.all.children.proxy.hosts)) == "singapore-proxy-1"
    error_message = "the machines of a region's group and of the region differ"
  }
}

run "a_host_says_its_zone_and_how_it_is_reached" {
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  assert {
    condition     = output.inventory.all.children.dublin.hosts["dublin-store-2"].zone == "eu-west-1b" && output.inventory.all.children.dublin.hosts["dublin-store-2"].ansible_host != "" && strcontains(output.inventory.all.children.dublin.hosts["dublin-store-2"].ansible_ssh_common_args, "--region eu-west-1")
    error_message = "Ansible couldn't reach a host, or wouldn't know its rack"
  }
}

run "both_regions_are_asked_for" {
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  assert {
    condition     = output.settings.newsfabric_frontdesk_urls == { oregon = "https://oregon.news.example.com", dublin = "https://dublin.news.example.com" }
    error_message = "fabric.json would lack a frontdesk"
  }
}

run "ansible_is_given_the_made_resources" {
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  assert {
    condition     = output.settings.newsfabric_networks == ["10.10.0.0/16", "10.11.0.0/16", "10.12.0.0/16"] && output.settings.newsfabric_proxies == { singapore = "oregon" } && output.settings.newsfabric_regions == ["oregon", "dublin"]
    error_message = "hosts would be looked for at wrong addresses"
  }

  assert {
    condition     = output.settings.newsfabric_gateways_at == ["readers.dublin.news.example.com", "readers.oregon.news.example.com"]
    error_message = "frontdesks would ignore boxes' reports"
  }

  assert {
    condition     = join(" ", output.settings.newsfabric_proxy_from) == "10.10.0.0/20 10.10.16.0/20 10.10.32.0/20 10.11.0.0/20 10.11.16.0/20 10.11.32.0/20"
    error_message = "frontdesks would take a balancer for the client"
  }

  assert {
    condition     = join(" ", output.settings.newsfabric_scaler_options.dublin) == "--aws-region eu-west-1 --boot 180s --cloudwatch newsfabric --drain 120s --driver aws --group newsfabric-dublin-retail --least 3 --most 200 --per-box 50000 --zones 3"
    error_message = "a scaler would drive another group, or none"
  }
}

run "each_region_lets_in_the_others_brokers_and_no_stranger" {
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  assert {
    condition     = alltrue([for opening in module.first.openings : alltrue([for cidr in opening.cidrs : contains(["0.0.0.0/0", "203.0.113.0/24", "10.12.224.0/24", "10.12.225.0/24", "10.12.226.0/24"], cidr) || startswith(cidr, "10.11.")])])
    error_message = "a stranger is let in"
  }

  assert {
    condition     = length([for opening in module.first.openings : opening if opening.to == "core" && contains(opening.cidrs, "10.11.224.0/24") && opening.port == 5671]) == 1
    error_message = "the other region's shovels can't reach the core"
  }
}

run "two_regions_of_one_name_are_refused" {
  command   = plan
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  variables {
    regions = {
      first = {
        name       = "oregon"
        aws_region = "us-west-2"
        cidr       = "10.10.0.0/16"
        zones      = ["us-west-2a", "us-west-2b", "us-west-2c"]
      }
      second = {
        name       = "oregon"
        aws_region = "eu-west-1"
        cidr       = "10.11.0.0/16"
        zones      = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
      }
    }
  }

  expect_failures = [var.regions]
}

run "a_proxy_nearest_to_nobody_is_refused" {
  command   = plan
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  variables {
    proxy = {
      name       = "singapore"
      aws_region = "ap-southeast-1"
      nearest    = "tokyo"
      cidr       = "10.12.0.0/16"
      zones      = ["ap-southeast-1a"]
    }
  }

  expect_failures = [var.proxy]
}

run "networks_that_overlap_are_refused" {
  command   = plan
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  variables {
    proxy = {
      name       = "singapore"
      aws_region = "ap-southeast-1"
      nearest    = "oregon"
      cidr       = "10.10.128.0/20"
      zones      = ["ap-southeast-1a"]
    }
  }

  expect_failures = [var.proxy]
}

run "images_of_other_places_are_refused" {
  command   = plan
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  variables {
    images = { oregon = "ami-0123456789abcdef0", dublin = "ami-0123456789abcdef1", tokyo = "ami-0123456789abcdef2" }
  }

  expect_failures = [var.images]
}

run "a_region_without_a_certificate_is_refused" {
  command   = plan
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  variables {
    certificates = { oregon = "arn:aws:acm:us-west-2:123456789012:certificate/c" }
  }

  expect_failures = [var.certificates]
}

run "publishers_from_anywhere_are_refused" {
  command   = plan
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  variables {
    publisher_cidrs = ["0.0.0.0/0"]
  }

  expect_failures = [var.publisher_cidrs]
}
