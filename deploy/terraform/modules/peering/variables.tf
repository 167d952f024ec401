variable "name" {
  description = "Name of the peering, like newsfabric-oregon-dublin."
  type        = string
}

variable "near" {
  description = "The network that asks (provider aws.near)."
  type = object({
    vpc_id          = string
    cidr            = string
    route_table_ids = map(string)
  })
}

variable "far" {
  description = "The network that is asked (provider aws.far), and its AWS region."
  type = object({
    vpc_id          = string
    cidr            = string
    aws_region      = string
    route_table_ids = map(string)
  })

  validation {
    condition     = var.far.cidr != var.near.cidr
    error_message = "far.cidr must differ from near.cidr: networks with the same addresses can't be peered."
  }
}
