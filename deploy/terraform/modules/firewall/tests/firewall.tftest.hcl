# Mocked groups all have the same id, so rules are identified by their keys: to-port-from.
mock_provider "aws" {}

variables {
  name            = "newsfabric-oregon"
  kind            = "region"
  network         = { vpc_id = "vpc-1", ssh_door_id = "sg-door" }
  publisher_cidrs = ["203.0.113.0/24"]
  far = {
    dublin    = { kind = "region", edge = ["10.11.0.0/20"], brokers = ["10.11.224.0/24"], store = ["10.11.240.0/24"] }
    singapore = { kind = "proxy", edge = [], brokers = ["10.12.224.0/24"], store = [] }
  }
}

run "only_the_two_doors_are_open_to_the_internet" {
  assert {
    condition     = join(" ", [for key, rule in aws_vpc_security_group_ingress_rule.cidrs : "${key}:${rule.from_port}" if rule.cidr_ipv4 == "0.0.0.0/0"]) == "frontdesks-door-443-0.0.0.0/0:443 readers-door-443-0.0.0.0/0:443"
    error_message = "docs/threats.md: strangers reach readers' port of gateways and the public port of frontdesks, nothing else"
  }
}

run "publishers_reach_the_client_cluster_alone" {
  assert {
    condition     = join(" ", [for key, rule in aws_vpc_security_group_ingress_rule.cidrs : "${key}:${rule.from_port}" if rule.cidr_ipv4 == "203.0.113.0/24"]) == "client-5671-203.0.113.0/24:5671"
    error_message = "publishers reach more than AMQPS of client nodes"
  }
}

run "a_box_reaches_amqp_of_the_core_and_the_store_and_no_management" {
  assert {
    condition = toset([for opening in output.openings : "${opening.to}:${opening.port}" if opening.group == "retail"]) == toset([
      "core:5671", "store:9042"
    ])
    error_message = "docs/threats.md: a box has a login on its region's core, and no more"
  }

  assert {
    condition     = alltrue([for opening in output.openings : opening.port == 9042 if contains(opening.cidrs, "10.11.0.0/20")])
    error_message = "another region's boxes reach more than the store"
  }
}

run "a_core_node_reads_at_each_box_as_readers_do" {
  assert {
    condition     = [for opening in output.openings : opening.port if opening.to == "retail" && opening.group == "core"] == [8080]
    error_message = "verify.yml couldn't ask a box whether a message arrives, or could do more there"
  }
}

run "admin_ports_are_open_to_nobody" {
  assert {
    condition     = toset([for opening in output.openings : opening.port]) == toset([443, 5671, 7000, 8080, 9042, 9100, 9106, 15671])
    error_message = "a port is open besides those of readers, frontdesks, brokers, stores and metrics"
  }

  assert {
    condition     = alltrue([for opening in output.openings : opening.group == "client" && length(opening.cidrs) == 0 if contains([9100, 9106], opening.port)])
    error_message = "another machine than Prometheus's, which is a client node, reads metrics"
  }
}

run "brokers_stand_alone_so_nobody_reaches_erlang_or_its_port_mapper" {
  assert {
    condition     = alltrue([for opening in output.openings : !contains([4369, 25672], opening.port)])
    error_message = "a broker has no other nodes: its port mapper and its distribution listen on loopback"
  }

  assert {
    condition     = alltrue([for opening in output.openings : !(opening.to == "client" && opening.group == "client") || opening.port == 9100])
    error_message = "client nodes reach more of each other than the node exporter"
  }
}

run "ssh_comes_from_the_endpoint_to_every_machine" {
  assert {
    condition     = join(" ", keys(aws_vpc_security_group_ingress_rule.ssh)) == "client core retail store" && alltrue([for rule in aws_vpc_security_group_ingress_rule.ssh : rule.referenced_security_group_id == "sg-door" && rule.from_port == 22 && rule.to_port == 22])
    error_message = "ssh must come from the endpoint, to machines, and from nowhere else"
  }

  assert {
    condition     = alltrue([for opening in output.openings : opening.port != 22])
    error_message = "ssh is open to other clients"
  }
}

run "what_one_end_may_say_the_other_may_hear" {
  assert {
    condition     = keys(aws_vpc_security_group_egress_rule.groups) == keys(aws_vpc_security_group_ingress_rule.groups)
    error_message = "a rule has one end only"
  }

  assert {
    condition     = alltrue([for key, rule in aws_vpc_security_group_egress_rule.groups : rule.from_port == aws_vpc_security_group_ingress_rule.groups[key].from_port])
    error_message = "one end speaks to another port than the other opens"
  }
}

run "the_store_talks_to_the_other_regions_store" {
  assert {
    condition     = aws_vpc_security_group_ingress_rule.cidrs["store-7000-10.11.240.0/24"].to_port == 7000 && aws_vpc_security_group_egress_rule.cidrs["store-7000-10.11.240.0/24"].to_port == 7000
    error_message = "Cassandra's nodes of two regions must reach each other"
  }
}

run "no_rule_has_what_ec2_refuses" {
  assert {
    condition     = alltrue([for rule in merge(aws_vpc_security_group_ingress_rule.cidrs, aws_vpc_security_group_egress_rule.cidrs, aws_vpc_security_group_ingress_rule.groups) : can(regex("^[A-Za-z0-9 ._:/()#,@+=&;{}!$*\\[\\]-]{1,255}$", rule.description))])
    error_message = "a description has a character that EC2 refuses"
  }
}

run "with_direct_addresses_readers_come_to_boxes_and_there_is_no_door" {
  variables {
    readers_edge = "direct"
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.cidrs["retail-443-0.0.0.0/0"].from_port == 443 && !contains(keys(output.groups), "readers-door")
    error_message = "readers must reach port 443 of boxes"
  }
}

run "a_proxy_lets_in_publishers_and_regions_brokers" {
  variables {
    kind = "proxy"
    far = {
      oregon = { kind = "region", edge = ["10.10.0.0/20"], brokers = ["10.10.224.0/24"], store = ["10.10.240.0/24"] }
    }
  }

  assert {
    condition = toset([for key, rule in aws_vpc_security_group_ingress_rule.cidrs : "${rule.cidr_ipv4}:${rule.from_port}"]) == toset([
      "203.0.113.0/24:5671", "10.10.224.0/24:5671", "10.10.224.0/24:15671", "10.10.224.0/24:9100"
    ])
    error_message = "a proxy is open to clients besides publishers and regions' brokers"
  }

  assert {
    condition     = join(" ", keys(output.groups)) == "proxy"
    error_message = "a proxy's network has other groups"
  }
}

run "a_publishers_network_that_is_none_is_refused" {
  command = plan

  variables {
    publisher_cidrs = ["the office"]
  }

  expect_failures = [var.publisher_cidrs]
}

run "the_internet_in_halves_is_refused" {
  command = plan

  variables {
    publisher_cidrs = ["0.0.0.0/1", "128.0.0.0/1"]
  }

  expect_failures = [var.publisher_cidrs]
}

run "another_edge_is_refused" {
  command = plan

  variables {
    readers_edge = "carrier pigeon"
  }

  expect_failures = [var.readers_edge]
}

run "a_port_out_of_range_is_refused" {
  command = plan

  variables {
    ports = { readers = 70000 }
  }

  expect_failures = [var.ports]
}

run "another_kind_is_refused" {
  command = plan

  variables {
    kind = "moon"
  }

  expect_failures = [var.kind]
}

run "another_networks_kind_is_refused" {
  command = plan

  variables {
    far = { dublin = { kind = "moon", edge = [], brokers = [], store = [] } }
  }

  expect_failures = [var.far]
}
