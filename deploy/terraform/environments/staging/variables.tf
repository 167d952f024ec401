variable "domain" {
  description = "Readers ask frontdesks at this name, like news.example.com."
  type        = string
}

variable "zone_id" {
  description = "Public hosted zone in Route 53 that the domain is in."
  type        = string
}

variable "images" {
  description = "The image, made by build-image.yml, in each AWS region."
  type = object({
    oregon    = string
    dublin    = string
    singapore = string
  })
}

variable "certificates" {
  description = "Each region's certificate in ACM, for DOMAIN, REGION.DOMAIN and readers.REGION.DOMAIN."
  type = object({
    oregon = string
    dublin = string
  })
}

variable "publisher_cidrs" {
  description = "Networks that publishers come from. Not the whole internet."
  type        = list(string)

  validation {
    condition     = length(var.publisher_cidrs) > 0 && !contains(var.publisher_cidrs, "0.0.0.0/0")
    error_message = "publisher_cidrs must be one network or more, like 203.0.113.0/24, and not 0.0.0.0/0: who can't reach a broker can't try passwords."
  }
}

variable "readers_edge" {
  description = "How readers come to boxes: by a Network Load Balancer (nlb), or to their own addresses (direct)."
  type        = string
  default     = "nlb"
}

variable "retail" {
  description = "Boxes of each region: type of machine, readers on one, how many, and times with more (module region)."
  type = object({
    instance_type   = optional(string, "c7i.large")
    readers_per_box = optional(number, 5000)
    plan = optional(object({
      least         = optional(number, 2)
      most          = optional(number, 6)
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
  description = "Who is told of alarms."
  type        = set(string)
  default     = []
}
