mock_provider "aws" {}

variables {
  domain  = "news.example.com"
  zone_id = "Z0123456789ABCDEFGHIJ"
  regions = {
    oregon = { aws_region = "us-west-2", frontdesks = { dns_name = "frontdesks.oregon", zone_id = "ZA" }, readers = { dns_name = "readers.oregon", zone_id = "ZB" } }
    dublin = { aws_region = "eu-west-1", frontdesks = { dns_name = "frontdesks.dublin", zone_id = "ZC" }, readers = null }
  }
  inside = {
    zone     = "newsfabric.internal"
    networks = { oregon = { vpc_id = "vpc-1", aws_region = "us-west-2" }, dublin = { vpc_id = "vpc-2", aws_region = "eu-west-1" } }
    hosts    = { "oregon-core-1" = "10.10.224.5" }
  }
}

run "readers_ask_the_nearest_region_that_is_well" {
  assert {
    condition     = { for name, record in aws_route53_record.nearest : name => record.latency_routing_policy[0].region } == { oregon = "us-west-2", dublin = "eu-west-1" }
    error_message = "the record isn't routed by latency"
  }

  assert {
    condition     = alltrue([for name, record in aws_route53_record.nearest : record.name == "news.example.com" && record.health_check_id == aws_route53_health_check.frontdesk[name].id && record.set_identifier == name])
    error_message = "a region's record doesn't follow its frontdesk's health"
  }
}

run "health_is_the_frontdesks_own_word_over_https" {
  assert {
    condition     = alltrue([for name, check in aws_route53_health_check.frontdesk : check.type == "HTTPS" && check.resource_path == "/healthz/ready" && check.fqdn == "${name}.news.example.com" && check.port == 443])
    error_message = "the health check has another target"
  }

  # After the loss of a region: three checks of ten seconds, and the lifetime of a name.
  assert {
    condition     = alltrue([for check in aws_route53_health_check.frontdesk : check.request_interval * check.failure_threshold <= 30])
    error_message = "a region's loss is noticed after more than half a minute"
  }
}

run "a_region_has_a_name_of_its_own_that_stays_when_it_is_evacuated" {
  variables {
    evacuated = ["dublin"]
  }

  assert {
    condition     = join(" ", keys(aws_route53_record.nearest)) == "oregon" && join(" ", keys(aws_route53_record.region)) == "dublin oregon"
    error_message = "an evacuated region gets new readers, or has lost its name"
  }
}

run "readers_balancers_have_names_where_there_are_some" {
  assert {
    condition     = output.readers_urls == { oregon = "https://readers.oregon.news.example.com" } && aws_route53_record.readers["oregon"].alias[0].name == "readers.oregon"
    error_message = "gateways would get another public URL"
  }
}

run "machines_have_names_inside_alone" {
  assert {
    condition     = aws_route53_record.inside["oregon-core-1"].name == "oregon-core-1.newsfabric.internal" && aws_route53_record.inside["oregon-core-1"].zone_id == aws_route53_zone.inside.zone_id
    error_message = "a machine's name is outside the internal zone"
  }

  assert {
    condition     = toset([for vpc in aws_route53_zone.inside.vpc : vpc.vpc_id]) == toset(["vpc-1", "vpc-2"])
    error_message = "a network can't look up machines' names, or strangers can"
  }
}

run "all_regions_evacuated_is_refused" {
  command = plan

  variables {
    evacuated = ["dublin", "oregon"]
  }

  expect_failures = [var.evacuated]
}

run "an_unknown_region_evacuated_is_refused" {
  command = plan

  variables {
    evacuated = ["atlantis"]
  }

  expect_failures = [var.evacuated]
}

run "a_domain_that_is_none_is_refused" {
  command = plan

  variables {
    domain = "https://news.example.com/"
  }

  expect_failures = [var.domain]
}

run "health_that_route_53_doesnt_check_is_refused" {
  command = plan

  variables {
    health = { interval = 5 }
  }

  expect_failures = [var.health]
}

run "a_zone_of_dns_that_is_none_is_refused" {
  command = plan

  variables {
    zone_id = "example.com"
  }

  expect_failures = [var.zone_id]
}

run "a_zone_inside_that_is_no_name_is_refused" {
  command = plan

  variables {
    inside = { zone = "inside", networks = {}, hosts = {} }
  }

  expect_failures = [var.inside]
}
