variable "name" {
  description = "Prefix of the alarms' names, like newsfabric-oregon."
  type        = string
}

variable "region" {
  description = "The region of the fabric: dimension Region of the scaler's metrics."
  type        = string
}

variable "scalers" {
  description = "Names of the region's scalers."
  type        = list(string)

  validation {
    condition     = length(var.scalers) >= 1 && length(distinct(var.scalers)) == length(var.scalers)
    error_message = "scalers must be one name or more, none twice."
  }
}

variable "cloudwatch_namespace" {
  description = "Namespace of the scalers' metrics (--cloudwatch), from module iam."
  type        = string
}

variable "machines" {
  description = "Name to instance id of brokers and stores."
  type        = map(string)
}

variable "target_groups" {
  description = "Entrance to its balancer and target group as CloudWatch names them; null where there is none."
  type        = map(object({ LoadBalancer = string, TargetGroup = string }))
}

variable "emails" {
  description = "Email addresses for alarms. Each has to confirm once."
  type        = set(string)

  validation {
    condition     = alltrue([for email in var.emails : can(regex("^[^@ ]+@[^@ ]+\\.[^@ ]+$", email))])
    error_message = "emails must be addresses, like desk@example.com."
  }
}

variable "kms_key_arn" {
  description = "Key that encrypts the topic's queued alarms."
  type        = string
}
