variable "name" {
  description = "The fabric's name: begins all names, and is the tag Fabric, by which the dynamic inventory finds machines."
  type        = string
}

variable "domain" {
  description = "The name at which readers reach frontdesks, like news.example.com."
  type        = string
}

variable "origins" {
  description = "Origins of pages that may connect, like https://www.example.com; empty: all may."
  type        = list(string)
  default     = []
}

variable "tokens" {
  description = "Checks of readers' tokens at boxes: URL of the issuer's JWKS, audience, issuer. Empty: no logins."
  type        = object({ keys = optional(string, ""), audience = optional(string, ""), issuer = optional(string, "") })
  default     = {}
}

variable "zone_id" {
  description = "Public hosted zone in Route 53 that the domain is in."
  type        = string
}

variable "regions" {
  description = "The two regions, first and second: their names in the fabric, and their places in AWS. The words give no rank."
  type = object({
    first = object({
      name       = string
      aws_region = string
      cidr       = string
      zones      = list(string)
    })
    second = object({
      name       = string
      aws_region = string
      cidr       = string
      zones      = list(string)
    })
  })

  validation {
    condition     = var.regions.first.name != var.regions.second.name
    error_message = "regions.first.name and regions.second.name must differ."
  }
}

variable "proxy" {
  description = "The proxy cluster in a third region, for publishers far from both: nearest is the region that gets all messages but gold ones."
  type = object({
    name          = string
    aws_region    = string
    nearest       = string
    cidr          = string
    zones         = list(string)
    number        = optional(number, 1)
    instance_type = optional(string, "m7i.large")
    data_gb       = optional(number, 50)
  })

  validation {
    condition     = contains([var.regions.first.name, var.regions.second.name], var.proxy.nearest)
    error_message = "proxy.nearest must be the name of one of the two regions."
  }

  validation {
    condition     = !contains([var.regions.first.name, var.regions.second.name], var.proxy.name)
    error_message = "proxy.name must differ from the regions' names."
  }

  validation {
    # Cut to the shorter of the two prefixes, overlapping networks are the same. Module network refuses values that are no networks.
    condition = alltrue([
      for pair in [[var.regions.first.cidr, var.regions.second.cidr], [var.regions.first.cidr, var.proxy.cidr], [var.regions.second.cidr, var.proxy.cidr]] :
      try(length(distinct([for cidr in pair : cidrhost("${split("/", cidr)[0]}/${min([for each in pair : tonumber(split("/", each)[1])]...)}", 0)])) == 2, true)
    ])
    error_message = "proxy.cidr and the two regions' cidr must not overlap: the networks are peered."
  }
}

variable "images" {
  description = "The image, made by build-image.yml, in the AWS region of each region and of the proxy cluster, by their names."
  type        = map(string)

  validation {
    condition     = toset(keys(var.images)) == toset([var.regions.first.name, var.regions.second.name, var.proxy.name])
    error_message = "images must have one of each region and of the proxy cluster, by its name."
  }
}

variable "certificates" {
  description = "Each region's certificate in ACM, for DOMAIN, REGION.DOMAIN and readers.REGION.DOMAIN, by its name."
  type        = map(string)

  validation {
    condition     = toset(keys(var.certificates)) == toset([var.regions.first.name, var.regions.second.name])
    error_message = "certificates must have one of each region, by its name."
  }
}

variable "publisher_cidrs" {
  description = "Networks of publishers. Not the whole internet."
  type        = list(string)

  validation {
    condition     = length(var.publisher_cidrs) > 0 && !contains(var.publisher_cidrs, "0.0.0.0/0")
    error_message = "publisher_cidrs must be one network or more, like 203.0.113.0/24, and not 0.0.0.0/0: strangers must not try passwords at brokers."
  }
}

variable "client" {
  description = "Each region's client cluster (module region)."
  type = object({
    number        = optional(number, 1)
    instance_type = optional(string, "m7i.large")
    data_gb       = optional(number, 50)
  })
  default = {}
}

variable "core" {
  description = "Each region's core cluster (module region)."
  type = object({
    number        = optional(number, 3)
    instance_type = optional(string, "m7i.xlarge")
    data_gb       = optional(number, 100)
  })
  default = {}
}

variable "store" {
  description = "Each region's data centre of Cassandra (module region)."
  type = object({
    number        = optional(number, 3)
    instance_type = optional(string, "r7i.xlarge")
    data_gb       = optional(number, 500)
  })
  default = {}
}

variable "retail" {
  description = "Each region's boxes (module region)."
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

variable "evacuated" {
  description = "Regions that readers aren't sent to, like [\"dublin\"]."
  type        = set(string)
  default     = []
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
