mock_provider "aws" {
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

variables {
  fabric          = "newsfabric"
  region          = "oregon"
  domain          = "news.example.com"
  cidr            = "10.10.0.0/16"
  zones           = ["us-west-2a", "us-west-2b", "us-west-2c"]
  image_id        = "ami-0123456789abcdef0"
  certificate_arn = "arn:aws:acm:us-west-2:123456789012:certificate/c"
  publisher_cidrs = ["203.0.113.0/24"]
}

run "a_region_has_its_clusters_and_a_group_for_its_boxes" {
  assert {
    condition     = { for group, hosts in output.hosts : group => length(hosts) } == { client = 1, core = 3, store = 3 }
    error_message = "a cluster's size differs from the given one"
  }

  assert {
    condition     = output.scaler_options.group == "newsfabric-oregon-retail" && output.scaler_options.zones == 3 && output.scaler_options.per_box == 50000
    error_message = "scalers have the name of another group"
  }
}

run "a_scaler_is_expected_beside_each_core_node" {
  assert {
    condition     = local.scalers == ["oregon-core-1-scaler", "oregon-core-2-scaler", "oregon-core-3-scaler"]
    error_message = "policies and alarms would watch scalers that nobody starts"
  }
}

run "core_nodes_admit_the_boxes_of_this_group" {
  assert {
    condition     = output.admission.group == output.scaler_options.group && output.admission.secrets == { tls = "newsfabric-oregon/tls/retail", store = "newsfabric-oregon/store/reader", boxes = "newsfabric-oregon/box/" } && output.admission.account == "123456789012" && output.admission.aws_region == "us-west-2"
    error_message = "boxes' passwords would be where boxes don't look"
  }
}

run "balancers_are_believed_by_their_subnets" {
  assert {
    condition     = join(" ", output.proxy_from) == "10.10.0.0/20 10.10.16.0/20 10.10.32.0/20"
    error_message = "--proxy-from must be the edge's subnets"
  }
}

run "one_zone_is_refused" {
  command = plan

  variables {
    zones = ["us-west-2a"]
  }

  expect_failures = [var.zones]
}

run "a_long_name_is_refused" {
  command = plan

  variables {
    fabric = "newsfabric-production"
  }

  expect_failures = [var.fabric]
}

run "a_region_with_a_dash_is_refused" {
  command = plan

  variables {
    region = "us-west-2"
  }

  expect_failures = [var.region]
}

run "a_certificate_that_is_none_is_refused" {
  command = plan

  variables {
    certificate_arn = "cert.pem"
  }

  expect_failures = [var.certificate_arn]
}

run "boxes_with_addresses_of_their_own_have_no_balancer_before_them" {
  variables {
    readers_edge = "direct"
    box_url      = "https://{box}.boxes.example.com"
    retail       = { readers_per_box = 100000 }
  }

  assert {
    condition     = output.doors.readers == null && output.scaler_options.per_box == 100000
    error_message = "an unused balancer costs money, or boxes accept only as many readers as behind one"
  }

  assert {
    condition     = length([for opening in output.openings : opening if opening.to == "retail" && opening.port == 443 && contains(opening.cidrs, "0.0.0.0/0")]) == 1
    error_message = "readers don't reach a box"
  }
}

run "boxes_without_a_name_are_refused" {
  command = plan

  variables {
    readers_edge = "direct"
    retail       = { readers_per_box = 100000 }
  }

  expect_failures = [var.box_url]
}

run "one_name_for_all_boxes_is_refused" {
  command = plan

  variables {
    readers_edge = "direct"
    box_url      = "https://boxes.example.com"
  }

  expect_failures = [var.box_url]
}

run "an_origin_with_a_path_is_refused" {
  command = plan

  variables {
    origins = ["https://www.example.com/news"]
  }

  expect_failures = [var.origins]
}

run "tokens_from_anybody_are_refused" {
  command = plan

  variables {
    tokens = { keys = "https://login.example.com/jwks.json", audience = "newsfabric" }
  }

  expect_failures = [var.tokens]
}

run "keys_over_plain_http_are_refused" {
  command = plan

  variables {
    tokens = { keys = "http://login.example.com/jwks.json", audience = "newsfabric", issuer = "https://login.example.com" }
  }

  expect_failures = [var.tokens]
}
