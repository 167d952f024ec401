variable "name" {
  description = "Prefix of all names here, like newsfabric-oregon."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,23}$", var.name))
    error_message = "name must have 3 to 24 characters, only a-z, 0-9 and -, and begin with a letter: a balancer's name has a suffix, and at most 32 characters."
  }
}

variable "cidr" {
  description = "Addresses of the network. Networks of one fabric are peered, so they must not overlap."
  type        = string

  validation {
    condition     = can(cidrhost(var.cidr, 0)) && try(tonumber(split("/", var.cidr)[1]) >= 16 && tonumber(split("/", var.cidr)[1]) <= 20, false)
    error_message = "cidr must be an IPv4 network from /16 to /20, like 10.10.0.0/16."
  }
}

variable "zones" {
  description = "Availability zones, each with three subnets. Three zones, so that two of three nodes remain after the loss of one."
  type        = list(string)

  validation {
    condition     = length(var.zones) >= 1 && length(var.zones) <= 6 && length(distinct(var.zones)) == length(var.zones)
    error_message = "zones must be 1 to 6 different availability zones."
  }
}

variable "endpoints" {
  description = "AWS services that the store's machines reach. They have no internet route, so they can't reach others."
  type        = set(string)
  default     = ["secretsmanager"]

  validation {
    condition     = length(setsubtract(var.endpoints, ["autoscaling", "ec2", "kms", "logs", "monitoring", "secretsmanager", "sts"])) == 0
    error_message = "endpoints may be autoscaling, ec2, kms, logs, monitoring, secretsmanager and sts."
  }
}

variable "flow_log_days" {
  description = "Days that the network's flow logs are kept."
  type        = number
  default     = 30

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365], var.flow_log_days)
    error_message = "flow_log_days must be 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180 or 365, as in CloudWatch."
  }
}

variable "kms_key_arn" {
  description = "Key that encrypts the flow logs."
  type        = string
}
