# The connection of two regions' networks: shovels, keepers and the store's nodes use it.

resource "aws_vpc_peering_connection" "this" {
  provider = aws.near

  vpc_id      = var.near.vpc_id
  peer_vpc_id = var.far.vpc_id
  peer_region = var.far.aws_region
  auto_accept = false

  tags = { Name = var.name }
}

resource "aws_vpc_peering_connection_accepter" "this" {
  provider = aws.far

  vpc_peering_connection_id = aws_vpc_peering_connection.this.id
  auto_accept               = true

  tags = { Name = var.name }
}

resource "aws_route" "near" {
  provider = aws.near
  for_each = var.near.route_table_ids

  route_table_id            = each.value
  destination_cidr_block    = var.far.cidr
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.vpc_peering_connection_id
}

resource "aws_route" "far" {
  provider = aws.far
  for_each = var.far.route_table_ids

  route_table_id            = each.value
  destination_cidr_block    = var.near.cidr
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.vpc_peering_connection_id
}
