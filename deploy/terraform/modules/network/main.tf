# A region's network: in each zone a subnet for the edge (boxes, balancers), for brokers and for the store.
# There is no NAT.
#
# Machines that readers and publishers connect to, and machines that ask the internet (frontdesks: token keys, other regions' boards), have
# public addresses; module firewall decides who may connect. Store nodes have none, and reach only peered networks and the endpoints below:
# the image has all of their programs.

data "aws_region" "here" {}

locals {
  # Of sixteen equal parts the last is for the store's subnets, the one before for brokers' subnets, the first ones for the edge, one each:
  # it has the most machines. Other regions' firewalls open to brokers, and not to boxes.
  edge    = { for n, zone in var.zones : zone => cidrsubnet(var.cidr, 4, n) }
  brokers = { for n, zone in var.zones : zone => cidrsubnet(cidrsubnet(var.cidr, 4, 14), 4, n) }
  store   = { for n, zone in var.zones : zone => cidrsubnet(cidrsubnet(var.cidr, 4, 15), 4, n) }
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true

  tags = { Name = var.name }
}

# A machine in no group of ours may do nothing.
resource "aws_default_security_group" "closed" {
  vpc_id = aws_vpc.this.id

  tags = { Name = "${var.name}-closed" }
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id

  tags = { Name = var.name }
}

resource "aws_subnet" "edge" {
  for_each = local.edge

  vpc_id            = aws_vpc.this.id
  availability_zone = each.key
  cidr_block        = each.value
  # Each machine's own setting decides whether it has a public address.
  map_public_ip_on_launch = false

  tags = { Name = "${var.name}-edge-${each.key}" }
}

resource "aws_subnet" "brokers" {
  for_each = local.brokers

  vpc_id            = aws_vpc.this.id
  availability_zone = each.key
  cidr_block        = each.value
  # Each machine's own setting decides whether it has a public address.
  map_public_ip_on_launch = false

  tags = { Name = "${var.name}-brokers-${each.key}" }
}

resource "aws_subnet" "store" {
  for_each = local.store

  vpc_id            = aws_vpc.this.id
  availability_zone = each.key
  cidr_block        = each.value
  # Each machine's own setting decides whether it has a public address.
  map_public_ip_on_launch = false

  tags = { Name = "${var.name}-store-${each.key}" }
}

resource "aws_route_table" "public" {
  vpc_id = aws_vpc.this.id

  tags = { Name = "${var.name}-public" }
}

resource "aws_route" "internet" {
  route_table_id         = aws_route_table.public.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}

resource "aws_route_table" "private" {
  vpc_id = aws_vpc.this.id

  tags = { Name = "${var.name}-private" }
}

resource "aws_route_table_association" "edge" {
  for_each = aws_subnet.edge

  subnet_id      = each.value.id
  route_table_id = aws_route_table.public.id
}

resource "aws_route_table_association" "brokers" {
  for_each = aws_subnet.brokers

  subnet_id      = each.value.id
  route_table_id = aws_route_table.public.id
}

resource "aws_route_table_association" "store" {
  for_each = aws_subnet.store

  subnet_id      = each.value.id
  route_table_id = aws_route_table.private.id
}

resource "aws_security_group" "endpoints" {
  name        = "${var.name}-endpoints"
  description = "AWS services, asked from inside"
  vpc_id      = aws_vpc.this.id

  tags = { Name = "${var.name}-endpoints" }
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  security_group_id = aws_security_group.endpoints.id
  description       = "HTTPS from machines of this network"
  cidr_ipv4         = var.cidr
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_endpoint" "services" {
  for_each = var.endpoints

  vpc_id              = aws_vpc.this.id
  service_name        = "com.amazonaws.${data.aws_region.here.region}.${each.key}"
  vpc_endpoint_type   = "Interface"
  subnet_ids          = [for subnet in aws_subnet.store : subnet.id]
  security_group_ids  = [aws_security_group.endpoints.id]
  private_dns_enabled = true

  tags = { Name = "${var.name}-${each.key}" }
}

# ssh of operators and of Ansible: AWS checks their login, and no machine has port 22 open to the internet.
resource "aws_security_group" "ssh_door" {
  name        = "${var.name}-ssh-door"
  description = "EC2 Instance Connect Endpoint"
  vpc_id      = aws_vpc.this.id

  tags = { Name = "${var.name}-ssh-door" }
}

resource "aws_vpc_security_group_egress_rule" "ssh_door" {
  security_group_id = aws_security_group.ssh_door.id
  description       = "ssh to machines of this network"
  cidr_ipv4         = var.cidr
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

resource "aws_ec2_instance_connect_endpoint" "this" {
  subnet_id          = aws_subnet.brokers[var.zones[0]].id
  security_group_ids = [aws_security_group.ssh_door.id]
  preserve_client_ip = false

  tags = { Name = var.name }
}

resource "aws_cloudwatch_log_group" "flow" {
  name              = "/newsfabric/${var.name}/flow"
  retention_in_days = var.flow_log_days
  kms_key_id        = var.kms_key_arn
}

resource "aws_iam_role" "flow" {
  name = "${var.name}-flow"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "vpc-flow-logs.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "flow" {
  name = "write-flow-logs"
  role = aws_iam_role.flow.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
      Resource = "${aws_cloudwatch_log_group.flow.arn}:*"
    }]
  })
}

resource "aws_flow_log" "this" {
  vpc_id          = aws_vpc.this.id
  traffic_type    = "REJECT"
  log_destination = aws_cloudwatch_log_group.flow.arn
  iam_role_arn    = aws_iam_role.flow.arn

  tags = { Name = var.name }
}
