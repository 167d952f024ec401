# Allowed connections. One table, from which both ends' rules are made: all other connections are
# closed. It follows docs/threats.md (the reach of each attacker) and newsfabric/topology (where
# shovels run). Admin ports are in no rule: they listen on loopback.

locals {
  internet = ["0.0.0.0/0"]
  regions  = { for name, far in var.far : name => far if far.kind == "region" }
  proxies  = { for name, far in var.far : name => far if far.kind == "proxy" }

  far_brokers = flatten([for far in values(local.regions) : far.brokers])
  far_store   = flatten([for far in values(local.regions) : far.store])
  far_edge    = flatten([for far in values(local.regions) : far.edge])
  far_proxies = flatten([for far in values(local.proxies) : far.brokers])

  # to: the group that is opened. group or cidrs: its clients.
  region_openings = concat([
    { to = "frontdesks-door", group = null, cidrs = local.internet, port = 443, why = "readers, publishers over HTTP and operators, to a frontdesk" },
    { to = "core", group = "frontdesks-door", cidrs = [], port = var.ports.frontdesk, why = "what the balancer lets through to a frontdesk" },
    { to = "core", group = "core", cidrs = [], port = var.ports.amqps, why = "services, and shovels between brokers" },
    { to = "core", group = "core", cidrs = [], port = var.ports.management, why = "keepers" },
    { to = "core", group = "client", cidrs = [], port = var.ports.amqps, why = "shovels of receipts, which run on client nodes" },
    { to = "core", group = "retail", cidrs = [], port = var.ports.amqps, why = "boxes' feeds and load reports" },
    { to = "core", group = null, cidrs = local.far_brokers, port = var.ports.amqps, why = "other regions' shovels and canaries" },
    { to = "core", group = null, cidrs = local.far_brokers, port = var.ports.management, why = "other regions' keepers make their source queues" },
    { to = "core", group = null, cidrs = local.far_proxies, port = var.ports.amqps, why = "proxies' shovels of receipts" },
    { to = "client", group = null, cidrs = var.publisher_cidrs, port = var.ports.amqps, why = "publishers" },
    { to = "client", group = "core", cidrs = [], port = var.ports.amqps, why = "shovels of what is published, frontdesks, canaries" },
    { to = "client", group = "core", cidrs = [], port = var.ports.management, why = "keepers" },
    { to = "client", group = null, cidrs = local.far_brokers, port = var.ports.amqps, why = "other regions' shovels of gold" },
    { to = "client", group = null, cidrs = local.far_brokers, port = var.ports.management, why = "other regions' keepers make their source queues" },
    { to = "store", group = "core", cidrs = [], port = var.ports.cql, why = "routers, mailboxes and frontdesks" },
    { to = "store", group = "retail", cidrs = [], port = var.ports.cql, why = "gateways read history and repair" },
    { to = "store", group = "store", cidrs = [], port = var.ports.gossip, why = "the cluster's nodes, over TLS" },
    { to = "store", group = null, cidrs = local.far_store, port = var.ports.gossip, why = "other regions' nodes, over TLS" },
    { to = "store", group = null, cidrs = concat(local.far_brokers, local.far_edge), port = var.ports.cql, why = "other regions read here while theirs has no quorum" },
    { to = "client", group = "client", cidrs = [], port = var.ports.node_exporter, why = "Prometheus, which is on client nodes" },
    { to = "core", group = "client", cidrs = [], port = var.ports.node_exporter, why = "Prometheus" },
    { to = "store", group = "client", cidrs = [], port = var.ports.node_exporter, why = "Prometheus" },
    { to = "retail", group = "client", cidrs = [], port = var.ports.node_exporter, why = "Prometheus" },
    { to = "core", group = "client", cidrs = [], port = var.ports.metrics, why = "Prometheus: metrics of processes, and nothing else of them" },
    { to = "retail", group = "client", cidrs = [], port = var.ports.metrics, why = "Prometheus: metrics of processes, and nothing else of them" },
    { to = "retail", group = "core", cidrs = [], port = var.ports.readers, why = "verify.yml, which reads a message at each box" },
    ], var.readers_edge == "nlb" ? [
    { to = "readers-door", group = null, cidrs = local.internet, port = 443, why = "readers" },
    { to = "retail", group = "readers-door", cidrs = [], port = var.ports.readers, why = "what the balancer lets through to a gateway" },
    ] : [
    { to = "retail", group = null, cidrs = local.internet, port = 443, why = "readers" },
  ])

  proxy_openings = [
    { to = "proxy", group = null, cidrs = var.publisher_cidrs, port = var.ports.amqps, why = "publishers" },
    { to = "proxy", group = null, cidrs = local.far_brokers, port = var.ports.amqps, why = "regions' shovels and canaries" },
    { to = "proxy", group = null, cidrs = local.far_brokers, port = var.ports.management, why = "regions' keepers" },
    { to = "proxy", group = null, cidrs = local.far_brokers, port = var.ports.node_exporter, why = "Prometheus of the nearest region" },
  ]

  openings = var.kind == "region" ? local.region_openings : local.proxy_openings

  # Outbound rules, to other networks and to the internet: token keys, other regions' boards, AWS itself.
  region_ways_out = [
    { from = "core", cidrs = concat(local.far_brokers, local.far_proxies), port = var.ports.amqps, why = "shovels and canaries" },
    { from = "core", cidrs = concat(local.far_brokers, local.far_proxies), port = var.ports.management, why = "keepers" },
    { from = "core", cidrs = local.far_store, port = var.ports.cql, why = "reads while this region has no quorum" },
    { from = "core", cidrs = local.internet, port = 443, why = "token keys, other regions' boards, AWS" },
    { from = "client", cidrs = local.far_proxies, port = var.ports.amqps, why = "shovels of what is published at proxies" },
    { from = "client", cidrs = local.far_proxies, port = var.ports.node_exporter, why = "Prometheus" },
    { from = "client", cidrs = local.internet, port = 443, why = "AWS" },
    { from = "store", cidrs = local.far_store, port = var.ports.gossip, why = "other regions' nodes" },
    { from = "store", cidrs = local.internet, port = 443, why = "AWS, by endpoints alone: there is no route further" },
    { from = "retail", cidrs = local.far_store, port = var.ports.cql, why = "reads while this region has no quorum" },
    { from = "retail", cidrs = local.internet, port = 443, why = "token keys, AWS" },
  ]
  proxy_ways_out = [
    { from = "proxy", cidrs = local.far_brokers, port = var.ports.amqps, why = "shovels of receipts" },
    { from = "proxy", cidrs = local.internet, port = 443, why = "AWS" },
  ]
  ways_out = var.kind == "region" ? local.region_ways_out : local.proxy_ways_out

  # EC2 allows no apostrophe in a rule's description, hence replace() below.

  groups   = toset(concat(local.openings[*].to, [for opening in local.openings : opening.group if opening.group != null]))
  machines = setintersection(local.groups, ["client", "core", "store", "retail", "proxy"])

  from_groups = { for each in local.openings : "${each.to}-${each.port}-${each.group}" => each if each.group != null }
  from_cidrs = merge([
    for each in local.openings : { for cidr in each.cidrs : "${each.to}-${each.port}-${cidr}" => merge(each, { cidr = cidr }) }
  ]...)
  to_cidrs = merge([
    for each in local.ways_out : { for cidr in each.cidrs : "${each.from}-${each.port}-${cidr}" => merge(each, { cidr = cidr }) }
  ]...)
}

resource "aws_security_group" "this" {
  for_each = local.groups

  name        = "${var.name}-${each.key}"
  description = "newsfabric ${each.key}"
  vpc_id      = var.network.vpc_id

  tags = { Name = "${var.name}-${each.key}" }
}

resource "aws_vpc_security_group_ingress_rule" "groups" {
  for_each = local.from_groups

  security_group_id            = aws_security_group.this[each.value.to].id
  referenced_security_group_id = aws_security_group.this[each.value.group].id
  description                  = replace(each.value.why, "'", "")
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
}

resource "aws_vpc_security_group_egress_rule" "groups" {
  for_each = local.from_groups

  security_group_id            = aws_security_group.this[each.value.group].id
  referenced_security_group_id = aws_security_group.this[each.value.to].id
  description                  = replace(each.value.why, "'", "")
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
}

resource "aws_vpc_security_group_ingress_rule" "cidrs" {
  for_each = local.from_cidrs

  security_group_id = aws_security_group.this[each.value.to].id
  cidr_ipv4         = each.value.cidr
  description       = replace(each.value.why, "'", "")
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
}

resource "aws_vpc_security_group_egress_rule" "cidrs" {
  for_each = local.to_cidrs

  security_group_id = aws_security_group.this[each.value.from].id
  cidr_ipv4         = each.value.cidr
  description       = replace(each.value.why, "'", "")
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each = local.machines

  security_group_id            = aws_security_group.this[each.key].id
  referenced_security_group_id = var.network.ssh_door_id
  description                  = "ssh of operators and Ansible"
  ip_protocol                  = "tcp"
  from_port                    = 22
  to_port                      = 22
}
