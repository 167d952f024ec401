variable "image_id" {
  description = "The image in us-west-2, made by build-image.yml."
  type        = string
}

variable "certificate_arn" {
  description = "Certificate in ACM for the domain and its subdomains."
  type        = string
}

variable "domain" {
  description = "Name at which readers reach the frontdesk."
  type        = string
}

variable "zone_id" {
  description = "Public hosted zone that the domain is in."
  type        = string
}

variable "publisher_cidrs" {
  description = "Networks of publishers."
  type        = list(string)
}
