variable "fabric" {
  description = "The fabric's name: prefix of all names, and the tag Fabric."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,11}$", var.fabric))
    error_message = "fabric must have 2 to 12 characters, only a-z, 0-9 and -, and begin with a letter: with a region's name a balancer's name may have 32."
  }
}

variable "region" {
  description = "The region's name in the fabric, like oregon. It is also Cassandra's data centre."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{1,10}$", var.region))
    error_message = "region must have 2 to 11 characters, only a-z and 0-9, and begin with a letter."
  }
}

variable "domain" {
  description = "Domain of the frontdesks: boxes use REGION.DOMAIN of each region."
  type        = string
}

variable "origins" {
  description = "Origins of pages that may connect, like https://www.example.com; empty: all may."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for origin in var.origins : can(regex("^https?://[a-z0-9.-]+(:[0-9]{1,5})?$", origin))])
    error_message = "origins must be a scheme and a host, like https://www.example.com, with no path."
  }
}

variable "tokens" {
  description = "Checks of readers' tokens at boxes: URL of the issuer's JWKS, audience, issuer. Empty: no logins."
  type        = object({ keys = optional(string, ""), audience = optional(string, ""), issuer = optional(string, "") })
  default     = {}

  validation {
    condition     = length(toset([for word in values(var.tokens) : word == ""])) == 1
    error_message = "tokens must have keys, audience and issuer, or none of them: without all three a token of another service would be valid here."
  }

  validation {
    condition     = var.tokens.keys == "" || can(regex("^https://[^@/ ]+(/[^ ]*)?$", var.tokens.keys))
    error_message = "tokens.keys must be a URL of https without a login, like https://login.example.com/jwks.json."
  }
}

variable "cidr" {
  description = "Addresses of the region's network."
  type        = string
}

variable "zones" {
  description = "Availability zones, three of them in production."
  type        = list(string)

  validation {
    condition     = length(var.zones) >= 2
    error_message = "zones must be 2 or more: balancers need two."
  }
}

variable "image_id" {
  description = "The image in this AWS region, made by build-image.yml."
  type        = string
}

variable "certificate_arn" {
  description = "Certificate from ACM in this AWS region, for DOMAIN, REGION.DOMAIN and readers.REGION.DOMAIN."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:acm:[a-z0-9-]+:[0-9]{12}:certificate/.+$", var.certificate_arn))
    error_message = "certificate_arn must be a certificate's ARN in ACM."
  }
}

variable "publisher_cidrs" {
  description = "Networks of publishers."
  type        = list(string)
}

variable "readers_edge" {
  description = "Readers' way to boxes: a Network Load Balancer (nlb), or their own addresses (direct), with names and TLS from elsewhere."
  type        = string
  default     = "nlb"
}

variable "box_url" {
  description = "With direct: URL at which readers reach one box; {box} stands for its id. Null with nlb."
  type        = string
  default     = null

  validation {
    condition     = (var.readers_edge == "direct") == (var.box_url != null)
    error_message = "box_url must be given with readers_edge direct, and only with it: this configuration makes no names of single boxes."
  }

  validation {
    condition     = var.box_url == null || can(regex("^https://[^@/ ]*\\{box\\}[^@/ ]*$", var.box_url))
    error_message = "box_url must be a URL of https with {box} in its host, like https://{box}.boxes.example.com."
  }
}

variable "far" {
  description = "The other networks of the fabric (module firewall)."
  type = map(object({
    kind    = string
    edge    = list(string)
    brokers = list(string)
    store   = list(string)
  }))
  default = {}
}

variable "client" {
  description = "The client cluster: nodes, type of machine, GiB of data."
  type = object({
    number        = optional(number, 1)
    instance_type = optional(string, "m7i.large")
    data_gb       = optional(number, 50)
  })
  default = {}
}

variable "core" {
  description = "The core cluster, with the region's services beside it: nodes, type of machine, GiB of data."
  type = object({
    number        = optional(number, 3)
    instance_type = optional(string, "m7i.xlarge")
    data_gb       = optional(number, 100)
  })
  default = {}
}

variable "store" {
  description = "The region's data centre of Cassandra: nodes, type of machine, GiB of data."
  type = object({
    number        = optional(number, 3)
    instance_type = optional(string, "r7i.xlarge")
    data_gb       = optional(number, 500)
  })
  default = {}
}

variable "retail" {
  description = "Boxes: type of machine, readers on one, their number, the scaler's times, and schedules (module retail)."
  type = object({
    instance_type   = optional(string, "c7i.xlarge")
    readers_per_box = optional(number, 50000)
    plan = optional(object({
      least         = optional(number, 3)
      most          = optional(number, 200)
      boot_seconds  = optional(number, 180)
      drain_seconds = optional(number, 120)
    }), {})
    schedules = optional(map(object({ least = number, begins = string, ends = string })), {})
  })
  default = {}
}

variable "alarm_emails" {
  description = "Email addresses for alarms."
  type        = set(string)
  default     = []
}

variable "deletion_protection" {
  description = "true: AWS refuses to delete the balancers."
  type        = bool
  default     = true
}
