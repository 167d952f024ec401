variable "name" {
  description = "Prefix of the balancers' names, like newsfabric-oregon."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,23}$", var.name))
    error_message = "name must have 3 to 24 characters, only a-z, 0-9 and -, and begin with a letter: a balancer's name has a suffix, and at most 32 characters."
  }
}

variable "vpc_id" {
  description = "The network."
  type        = string
}

variable "subnets" {
  description = "Zone to the edge's subnet."
  type        = map(string)

  validation {
    condition     = length(var.subnets) >= 2
    error_message = "subnets must be in 2 zones or more: an Application Load Balancer needs two."
  }
}

variable "readers_edge" {
  description = "Readers' way to boxes: a Network Load Balancer (nlb), or their own addresses (direct)."
  type        = string
  default     = "nlb"

  validation {
    condition     = contains(["nlb", "direct"], var.readers_edge)
    error_message = "readers_edge must be nlb or direct."
  }
}

variable "groups" {
  description = "Security groups of the balancers, from module firewall: frontdesks-door, and readers-door with nlb."
  type        = map(string)

  validation {
    condition     = contains(keys(var.groups), "frontdesks-door") && (var.readers_edge != "nlb" || contains(keys(var.groups), "readers-door"))
    error_message = "groups must have frontdesks-door, and with nlb readers-door."
  }
}

variable "certificate_arn" {
  description = "Certificate of the region's names, from ACM."
  type        = string
}

variable "readers_port" {
  description = "Port of a gateway for readers."
  type        = number
  default     = 8080

  validation {
    condition     = var.readers_port >= 1 && var.readers_port <= 65535 && floor(var.readers_port) == var.readers_port
    error_message = "readers_port must be a whole number from 1 to 65535."
  }
}

variable "frontdesk_port" {
  description = "Port of a frontdesk."
  type        = number
  default     = 8080

  validation {
    condition     = var.frontdesk_port >= 1 && var.frontdesk_port <= 65535 && floor(var.frontdesk_port) == var.frontdesk_port
    error_message = "frontdesk_port must be a whole number from 1 to 65535."
  }
}

variable "frontdesks" {
  description = "Name to instance id of the machines with a frontdesk."
  type        = map(string)
}

variable "drain_seconds" {
  description = "Seconds for which a balancer leaves connections of a draining box open."
  type        = number
  default     = 120

  validation {
    condition     = var.drain_seconds >= 10 && var.drain_seconds <= 3600
    error_message = "drain_seconds must be from 10 to 3600, as in target groups."
  }
}

variable "tls_policy" {
  description = "TLS policy of both balancers."
  type        = string
  default     = "ELBSecurityPolicy-TLS13-1-2-2021-06"

  validation {
    condition     = can(regex("TLS13-1-[23]", var.tls_policy))
    error_message = "tls_policy must be a policy of TLS 1.2 or later, like ELBSecurityPolicy-TLS13-1-2-2021-06."
  }
}

variable "deletion_protection" {
  description = "true: AWS refuses to delete the balancers."
  type        = bool
  default     = true
}
