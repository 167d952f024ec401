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

variable "origins" {
  description = "Origins of pages that may connect, like https://www.example.com; empty: all may."
  type        = list(string)
  default     = []
}

variable "tokens" {
  description = "How boxes check readers' tokens: URL of the issuer's JWKS, audience, issuer. Empty: no logins."
  type        = object({ keys = optional(string, ""), audience = optional(string, ""), issuer = optional(string, "") })
  default     = {}
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
