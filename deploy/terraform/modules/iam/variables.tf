variable "name" {
  description = "Prefix of the names of roles and secrets, like newsfabric-oregon."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,39}$", var.name))
    error_message = "name must have 3 to 40 characters, only a-z, 0-9 and -, and begin with a letter: a role's name may have 64."
  }
}

variable "roles" {
  description = "Groups of machines: client, core, store, retail, proxy."
  type        = set(string)

  validation {
    condition     = length(var.roles) > 0 && length(setsubtract(var.roles, ["client", "core", "store", "retail", "proxy"])) == 0
    error_message = "roles may be client, core, store, retail and proxy, and there must be one."
  }
}

variable "group_name" {
  description = "Name of the autoscaling group of boxes; null where there is none."
  type        = string
  default     = null
}

variable "cloudwatch_namespace" {
  description = "Namespace of the scaler's metrics (--cloudwatch)."
  type        = string
  default     = "newsfabric"

  validation {
    condition     = can(regex("^[A-Za-z0-9._/#-]{1,255}$", var.cloudwatch_namespace)) && !startswith(var.cloudwatch_namespace, "AWS/")
    error_message = "cloudwatch_namespace must have 1 to 255 letters, digits and . _ / # -, and not begin with AWS/, which AWS reserves."
  }
}

variable "account_id" {
  description = "The AWS account."
  type        = string

  validation {
    condition     = can(regex("^[0-9]{12}$", var.account_id))
    error_message = "account_id must have 12 digits."
  }
}

variable "aws_region" {
  description = "The AWS region, like us-west-2."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.aws_region))
    error_message = "aws_region must be a region of AWS, like us-west-2."
  }
}

variable "partition" {
  description = "AWS's partition, as in arn:PARTITION:…"
  type        = string
  default     = "aws"

  validation {
    condition     = can(regex("^aws(-[a-z]+)*$", var.partition))
    error_message = "partition must be one of AWS, like aws or aws-us-gov."
  }
}
