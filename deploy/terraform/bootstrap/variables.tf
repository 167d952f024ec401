variable "aws_region" {
  description = "AWS region of the bucket."
  type        = string
  default     = "us-west-2"

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.aws_region))
    error_message = "aws_region must be a region of AWS, like us-west-2."
  }
}

variable "bucket" {
  description = "Name of the bucket, unique in all of AWS."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "bucket must have 3 to 63 characters, only a-z, 0-9 and -, as in S3."
  }
}

variable "old_version_days" {
  description = "Days that old versions of the state are kept."
  type        = number
  default     = 180

  validation {
    condition     = var.old_version_days >= 7 && var.old_version_days <= 3650
    error_message = "old_version_days must be from 7 to 3650: old versions undo mistakes."
  }
}
