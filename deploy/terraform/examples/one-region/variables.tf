variable "image_id" {
  description = "The image in us-west-2, made by build-image.yml."
  type        = string
}

variable "certificate_arn" {
  description = "Certificate in ACM for the domain and what is below it."
  type        = string
}

variable "domain" {
  description = "Name that readers ask the frontdesk at."
  type        = string
}

variable "zone_id" {
  description = "Public hosted zone that the domain is in."
  type        = string
}

variable "publisher_cidrs" {
  description = "Networks that publishers come from."
  type        = list(string)
}
