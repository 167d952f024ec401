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

variable "name" {
  description = "Prefix of the nodes' names: oregon-store makes oregon-store-1 and so on."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,39}$", var.name))
    error_message = "name must have 2 to 40 characters, only a-z, 0-9 and -, and begin with a letter."
  }
}

variable "number" {
  description = "Nodes of this data centre: three, or a multiple of it, for three replicas in three zones. A single node keeps nothing safe."
  type        = number
  default     = 3

  validation {
    condition     = var.number == 1 || (var.number >= 3 && var.number <= 30 && var.number % 3 == 0)
    error_message = "number must be 1, or a multiple of 3 up to 30: with two replicas either node's death stops all writes, and zones should have the same number of nodes."
  }
}

variable "instance_type" {
  description = "Type of machine. A node needs 8 GiB of heap and as much for the page cache."
  type        = string
  default     = "r7i.xlarge"
}

variable "data" {
  description = "Volume of a node's tables and commit log: GiB, operations a second, MiB a second."
  type = object({
    gb         = number
    iops       = optional(number, 6000)
    throughput = optional(number, 250)
  })
  default = { gb = 500 }
}
