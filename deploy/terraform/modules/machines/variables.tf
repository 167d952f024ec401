variable "name" {
  description = "Prefix of the machines' names: NAME-1, NAME-2, …"
  type        = string
}

variable "role" {
  description = "Group of the Ansible inventory that they are in."
  type        = string

  validation {
    condition     = contains(["client", "core", "store", "proxy"], var.role)
    error_message = "role must be client, core, store or proxy; retail boxes come from an autoscaling group."
  }
}

variable "fabric" {
  description = "Tag Fabric, by which the dynamic inventory finds them."
  type        = string
}

variable "region" {
  description = "The fabric's region of the machines, like oregon: tag Region."
  type        = string
}

variable "number" {
  description = "Number of machines, spread over the zones in turn."
  type        = number

  validation {
    condition     = var.number >= 1 && var.number <= 30 && floor(var.number) == var.number
    error_message = "number must be a whole number from 1 to 30."
  }
}

variable "zones" {
  description = "Zones in their order."
  type        = list(string)
}

variable "subnets" {
  description = "Zone to subnet."
  type        = map(string)

  validation {
    condition     = length(var.zones) > 0 && length(setsubtract(var.zones, keys(var.subnets))) == 0
    error_message = "subnets must have one for each of zones, of which there must be one at least."
  }
}

variable "public" {
  description = "true: each has a public address that stays when the machine is replaced."
  type        = bool
  default     = false
}

variable "image_id" {
  description = "The image, made by build-image.yml."
  type        = string

  validation {
    condition     = can(regex("^ami-[0-9a-f]{8,17}$", var.image_id))
    error_message = "image_id must be an AMI's id, like ami-0123456789abcdef0."
  }
}

variable "instance_type" {
  description = "Type of machine."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*\\.[a-z0-9-]+$", var.instance_type))
    error_message = "instance_type must be a type of EC2, like m7i.large."
  }
}

variable "instance_profile" {
  description = "Instance profile, from module iam."
  type        = string
}

variable "security_group_ids" {
  description = "Security groups of their network interfaces."
  type        = list(string)
}

variable "kms_key_arn" {
  description = "Key that encrypts their volumes."
  type        = string
}

variable "root_gb" {
  description = "GiB of the system's volume."
  type        = number
  default     = 20

  validation {
    condition     = var.root_gb >= 10 && var.root_gb <= 1000
    error_message = "root_gb must be from 10 to 1000."
  }
}

variable "data" {
  description = "The data volume, which outlives the machine: GiB, operations a second, MiB a second."
  type = object({
    gb         = number
    iops       = optional(number, 3000)
    throughput = optional(number, 125)
  })

  validation {
    condition     = var.data.gb >= 10 && var.data.gb <= 16384
    error_message = "data.gb must be from 10 to 16384."
  }

  validation {
    condition     = var.data.iops >= 3000 && var.data.iops <= 16000 && var.data.throughput >= 125 && var.data.throughput <= 1000
    error_message = "data.iops must be from 3000 to 16000 and data.throughput from 125 to 1000, as gp3 volumes have them."
  }
}

variable "user_data" {
  description = "User data for the machine's first boot. No secrets: every process on the machine can read it."
  type        = map(string)
  default     = {}
}
