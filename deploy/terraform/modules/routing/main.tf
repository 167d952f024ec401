# Names. Readers ask the nearest healthy region's frontdesk. Each region has a name of its own, too, for
# health checks, other regions' boards and readers' alternates. Names inside never change when a machine
# is replaced.

locals {
  served = { for name, region in var.regions : name => region if !contains(var.evacuated, name) }
}

resource "aws_route53_health_check" "frontdesk" {
  for_each = var.regions

  type              = "HTTPS"
  fqdn              = "${each.key}.${var.domain}"
  port              = 443
  resource_path     = "/healthz/ready"
  request_interval  = var.health.interval
  failure_threshold = var.health.failures
  enable_sni        = true

  tags = { Name = "${each.key}.${var.domain}" }
}

resource "aws_route53_record" "nearest" {
  for_each = local.served

  zone_id         = var.zone_id
  name            = var.domain
  type            = "A"
  set_identifier  = each.key
  health_check_id = aws_route53_health_check.frontdesk[each.key].id

  latency_routing_policy {
    region = each.value.aws_region
  }

  alias {
    name                   = each.value.frontdesks.dns_name
    zone_id                = each.value.frontdesks.zone_id
    evaluate_target_health = true
  }
}

resource "aws_route53_record" "region" {
  for_each = var.regions

  zone_id = var.zone_id
  name    = "${each.key}.${var.domain}"
  type    = "A"

  alias {
    name                   = each.value.frontdesks.dns_name
    zone_id                = each.value.frontdesks.zone_id
    evaluate_target_health = false
  }
}

resource "aws_route53_record" "readers" {
  for_each = { for name, region in var.regions : name => region.readers if region.readers != null }

  zone_id = var.zone_id
  name    = "readers.${each.key}.${var.domain}"
  type    = "A"

  alias {
    name                   = each.value.dns_name
    zone_id                = each.value.zone_id
    evaluate_target_health = false
  }
}

resource "aws_route53_zone" "inside" {
  name    = var.inside.zone
  comment = "newsfabric: machines by name"

  dynamic "vpc" {
    for_each = var.inside.networks

    content {
      vpc_id     = vpc.value.vpc_id
      vpc_region = vpc.value.aws_region
    }
  }
}

resource "aws_route53_record" "inside" {
  for_each = var.inside.hosts

  zone_id = aws_route53_zone.inside.zone_id
  name    = "${each.key}.${var.inside.zone}"
  type    = "A"
  ttl     = 60
  records = [each.value]
}
