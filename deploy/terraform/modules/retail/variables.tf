variable "name" {
  description = "Name of the autoscaling group (--group of the scaler), like newsfabric-oregon-retail."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,63}$", var.name))
    error_message = "name must have 3 to 64 characters, only a-z, 0-9 and -, and begin with a letter."
  }
}

variable "fabric" {
  description = "Tag Fabric, by which the dynamic inventory finds boxes."
  type        = string
}

variable "region" {
  description = "The boxes' region of the fabric, like oregon: tag Region, and dimension Region of the scaler's metrics."
  type        = string
}

variable "subnets" {
  description = "Zone to subnet. The group spreads boxes evenly over them."
  type        = map(string)
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
  description = "Type of machine. Figures for it are in deploy/terraform/README.md."
  type        = string
  default     = "c7i.xlarge"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*\\.[a-z0-9-]+$", var.instance_type))
    error_message = "instance_type must be a type of EC2, like c7i.xlarge."
  }
}

variable "instance_profile_arn" {
  description = "Instance profile, from module iam."
  type        = string
}

variable "security_group_id" {
  description = "Security group of boxes, from module firewall."
  type        = string
}

variable "kms_key_arn" {
  description = "Key that encrypts their volumes."
  type        = string
}

variable "target_group_arns" {
  description = "Target groups of the readers' balancer; empty where readers connect to boxes' own addresses."
  type        = list(string)
  default     = []
}

variable "root_gb" {
  description = "GiB of a box's volume."
  type        = number
  default     = 20

  validation {
    condition     = var.root_gb >= 10 && var.root_gb <= 1000
    error_message = "root_gb must be from 10 to 1000."
  }
}

variable "plan" {
  description = "Limits and times of scaling: the scaler's --least, --most, --boot and --drain. Give the scalers the same values."
  type = object({
    least         = optional(number, 3)
    most          = optional(number, 200)
    boot_seconds  = optional(number, 180)
    drain_seconds = optional(number, 120)
  })
  default = {}

  validation {
    condition     = var.plan.least >= 2 && var.plan.least <= var.plan.most && var.plan.most <= 1000
    error_message = "plan.least must be 2 or more and at most plan.most, and plan.most at most 1000, the scaler's limit."
  }

  validation {
    condition     = var.plan.boot_seconds >= 30 && var.plan.boot_seconds <= 3600
    error_message = "plan.boot_seconds must be from 30 to 3600."
  }

  validation {
    condition     = var.plan.drain_seconds >= 10 && var.plan.drain_seconds <= 7080
    error_message = "plan.drain_seconds must be from 10 to 7080: AWS lets a lifecycle hook wait for 7200, and the machine needs two minutes to stop."
  }
}

variable "readers_per_box" {
  description = "Readers that one box accepts: --capacity of its gateway, --per-box of the scalers."
  type        = number
  default     = 100000

  validation {
    condition     = var.readers_per_box >= 100 && var.readers_per_box <= 1000000
    error_message = "readers_per_box must be from 100 to 1000000."
  }

  validation {
    condition     = length(var.target_group_arns) == 0 || var.readers_per_box <= 50000
    error_message = "readers_per_box must be at most 50000 behind a Network Load Balancer, which makes 55000 connections to one machine and port: choose readers_edge direct for more."
  }
}

variable "cloudwatch_namespace" {
  description = "Namespace of the scalers' metrics (--cloudwatch), from module iam."
  type        = string
}

variable "scalers" {
  description = "Names of the region's scalers, dimension Scaler of their metrics. The largest number counts."
  type        = list(string)

  validation {
    condition     = length(var.scalers) >= 1 && length(var.scalers) <= 7 && length(distinct(var.scalers)) == length(var.scalers)
    error_message = "scalers must be 1 to 7 different names: AWS accepts ten metrics for a target, and two are the group's."
  }
}

variable "busy_percent" {
  description = "Mean processor time of boxes from which the safety net adds boxes, independent of the scalers."
  type        = number
  default     = 60

  validation {
    condition     = var.busy_percent >= 20 && var.busy_percent <= 90
    error_message = "busy_percent must be from 20 to 90."
  }
}

variable "schedules" {
  description = "Schedules of extra boxes: name to the minimum, its begin and its end (cron, UTC)."
  type = map(object({
    least  = number
    begins = string
    ends   = string
  }))
  default = {}

  validation {
    condition     = alltrue([for each in values(var.schedules) : each.least >= var.plan.least && each.least <= var.plan.most])
    error_message = "schedules.*.least must be from plan.least to plan.most."
  }

  validation {
    condition     = alltrue([for each in values(var.schedules) : length(split(" ", each.begins)) == 5 && length(split(" ", each.ends)) == 5])
    error_message = "schedules.*.begins and ends must be cron's five fields, like 0 17 * * TUE."
  }
}

variable "box_settings" {
  description = "User data of a box: AMQPS URLs of the core, the store's URL, frontdesks (its own region's first), and the URL for readers ({box} is its id). Also networks of frontdesks and of balancers, pages that may connect, the checks of tokens, and names of its secrets."
  type = object({
    core           = list(string)
    store          = string
    frontdesks     = list(string)
    public_url     = string
    networks       = list(string)
    proxy_from     = list(string)
    origins        = optional(list(string), [])
    token_keys     = optional(string, "")
    token_audience = optional(string, "")
    token_issuer   = optional(string, "")
    secrets        = object({ tls = string, store = string, boxes = string })
  })

  validation {
    condition     = length(var.box_settings.core) > 0 && length(var.box_settings.frontdesks) > 0 && alltrue([for url in concat(var.box_settings.core, [var.box_settings.store]) : !strcontains(url, "@")])
    error_message = "box_settings must have one core node and one frontdesk at least, and no URL with a login: user data is no place for secrets."
  }
}
