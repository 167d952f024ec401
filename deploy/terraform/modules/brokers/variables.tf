variable "fabric" {
  description = "Tag Fabric, by which the dynamic inventory finds them."
  type        = string
}

variable "region" {
  description = "The fabric's region of the machines, like oregon: tag Region."
  type        = string
}

variable "zones" {
  description = "Zones in their order."
  type        = list(string)
}

variable "subnets" {
  description = "Zone to subnet."
  type        = map(string)
}

variable "image_id" {
  description = "The image, made by build-image.yml."
  type        = string
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

variable "role" {
  description = "The cluster: client (publishers' entrance), core, or proxy (an entrance far from every region)."
  type        = string

  validation {
    condition     = contains(["client", "core", "proxy"], var.role)
    error_message = "role must be client, core or proxy."
  }
}

variable "name" {
  description = "Prefix of the nodes' names: oregon-core makes oregon-core-1 and so on."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,39}$", var.name))
    error_message = "name must have 2 to 40 characters, only a-z, 0-9 and -, and begin with a letter: it becomes part of nodes' names."
  }
}

variable "number" {
  description = "Number of brokers that stand side by side. Two or more, in as many zones, survive the loss of one."
  type        = number
  default     = 3

  validation {
    condition     = contains(range(1, 10), var.number)
    error_message = "number must be a whole number from 1 to 9."
  }
}

variable "instance_type" {
  description = "Type of machine. Services of a region run beside its core's nodes."
  type        = string
  default     = "m7i.xlarge"
}

variable "data" {
  description = "Volume of the node's queues: GiB, operations a second, MiB a second."
  type = object({
    gb         = number
    iops       = optional(number, 3000)
    throughput = optional(number, 125)
  })
  default = { gb = 100 }
}
