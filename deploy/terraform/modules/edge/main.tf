# A region's public entrances: an Application Load Balancer before its frontdesks, and, unless readers
# connect to boxes' own addresses, a Network Load Balancer before its gateways.
#
# The readers' balancer ends TLS and reports a reader's address in a PROXY header (version 2): gateways are started with
# --proxy-from for the edge's subnets. Clients' addresses aren't preserved: otherwise anybody could send the header.

resource "aws_lb" "readers" {
  count = var.readers_edge == "nlb" ? 1 : 0

  name                             = "${var.name}-readers"
  load_balancer_type               = "network"
  internal                         = false
  subnets                          = values(var.subnets)
  security_groups                  = [var.groups["readers-door"]]
  enable_cross_zone_load_balancing = true
  enable_deletion_protection       = var.deletion_protection
}

resource "aws_lb_target_group" "readers" {
  count = var.readers_edge == "nlb" ? 1 : 0

  name                   = "${var.name}-readers"
  vpc_id                 = var.vpc_id
  target_type            = "instance"
  protocol               = "TCP"
  port                   = var.readers_port
  proxy_protocol_v2      = true
  preserve_client_ip     = "false"
  deregistration_delay   = tostring(var.drain_seconds)
  connection_termination = false

  health_check {
    protocol            = "HTTP"
    path                = "/healthz/ready"
    matcher             = "200"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "readers" {
  count = var.readers_edge == "nlb" ? 1 : 0

  load_balancer_arn = aws_lb.readers[0].arn
  protocol          = "TLS"
  port              = 443
  ssl_policy        = var.tls_policy
  certificate_arn   = var.certificate_arn
  # WebSocket over HTTP/1.1: the balancer offers nothing else.
  alpn_policy = "HTTP1Only"

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.readers[0].arn
  }
}

# Frontdesks trust X-Forwarded-For from there, so this balancer speaks HTTP, over TLS to them as well: they have certificates of the
# fabric's own authority (newsfabric_tls), and the balancer accepts any certificate.
resource "aws_lb" "frontdesks" {
  name                       = "${var.name}-http"
  load_balancer_type         = "application"
  internal                   = false
  subnets                    = values(var.subnets)
  security_groups            = [var.groups["frontdesks-door"]]
  drop_invalid_header_fields = true
  enable_deletion_protection = var.deletion_protection
  # The board is a stream with an event each second.
  idle_timeout = 60
}

resource "aws_lb_target_group" "frontdesks" {
  name                 = "${var.name}-http"
  vpc_id               = var.vpc_id
  target_type          = "instance"
  protocol             = "HTTPS"
  port                 = var.frontdesk_port
  deregistration_delay = "15"

  health_check {
    protocol            = "HTTPS"
    path                = "/healthz/ready"
    matcher             = "200"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_target_group_attachment" "frontdesks" {
  for_each = var.frontdesks

  target_group_arn = aws_lb_target_group.frontdesks.arn
  target_id        = each.value
  port             = var.frontdesk_port
}

resource "aws_lb_listener" "frontdesks" {
  load_balancer_arn = aws_lb.frontdesks.arn
  protocol          = "HTTPS"
  port              = 443
  ssl_policy        = var.tls_policy
  certificate_arn   = var.certificate_arn

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.frontdesks.arn
  }
}
