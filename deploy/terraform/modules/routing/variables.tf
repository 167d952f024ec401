variable "domain" {
  description = "The name at which readers reach frontdesks, like news.example.com; regions' names are below it."
  type        = string

  validation {
    condition     = can(regex("^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z]{2,}$", var.domain))
    error_message = "domain must be a host name, like news.example.com."
  }
}

variable "zone_id" {
  description = "Public hosted zone that the domain is in."
  type        = string

  validation {
    condition     = can(regex("^Z[A-Z0-9]{5,31}$", var.zone_id))
    error_message = "zone_id must be a hosted zone's id, like Z0123456789ABCDEFGHIJ."
  }
}

variable "regions" {
  description = "Region to its AWS region and its balancers; readers is null where readers connect to boxes' own addresses."
  type = map(object({
    aws_region = string
    frontdesks = object({ dns_name = string, zone_id = string })
    readers    = optional(object({ dns_name = string, zone_id = string }))
  }))
}

variable "evacuated" {
  description = "Regions to which no reader is sent. Their own names stay, and readers who are there stay as well."
  type        = set(string)
  default     = []

  validation {
    condition     = length(setsubtract(var.evacuated, keys(var.regions))) == 0
    error_message = "evacuated must have names of the fabric's regions only."
  }

  validation {
    condition     = length(setsubtract(keys(var.regions), var.evacuated)) >= 1
    error_message = "evacuated must leave one region at least."
  }
}

variable "health" {
  description = "Health checks of frontdesks: seconds between two (10 or 30), and the number of failures that counts as down."
  type = object({
    interval = optional(number, 10)
    failures = optional(number, 3)
  })
  default = {}

  validation {
    condition     = contains([10, 30], var.health.interval) && var.health.failures >= 1 && var.health.failures <= 10
    error_message = "health.interval must be 10 or 30 and health.failures from 1 to 10, as in Route 53."
  }
}

variable "inside" {
  description = "Names inside: the zone, the networks that may ask for them, and host to address."
  type = object({
    zone     = string
    networks = map(object({ vpc_id = string, aws_region = string }))
    hosts    = map(string)
  })

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*\\.internal$", var.inside.zone)) && length(var.inside.networks) > 0
    error_message = "inside.zone must end in .internal, like newsfabric.internal, which no public zone has, and inside.networks must have one network at least."
  }
}
