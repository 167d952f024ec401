variable "name" {
  description = "Prefix of the groups' names, like newsfabric-oregon."
  type        = string
}

variable "kind" {
  description = "Contents of this network: a whole region, or a proxy cluster."
  type        = string

  validation {
    condition     = contains(["region", "proxy"], var.kind)
    error_message = "kind must be region or proxy."
  }
}

variable "network" {
  description = "The network: its id, and the security group of ssh."
  type = object({
    vpc_id      = string
    ssh_door_id = string
  })
}

variable "publisher_cidrs" {
  description = "Networks of publishers. Brokers ask for a login all the same; fewer networks mean fewer attackers."
  type        = list(string)

  validation {
    condition     = alltrue([for cidr in var.publisher_cidrs : can(cidrhost(cidr, 0))])
    error_message = "publisher_cidrs must be IPv4 networks, like 203.0.113.0/24."
  }

  # Two halves of the internet are the internet.
  validation {
    condition     = alltrue([for cidr in var.publisher_cidrs : try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "publisher_cidrs must be networks of a prefix of /8 or longer: name the publishers' own networks."
  }
}

variable "readers_edge" {
  description = "Readers' way to boxes: a Network Load Balancer (nlb), or their own addresses (direct)."
  type        = string
  default     = "nlb"

  validation {
    condition     = contains(["nlb", "direct"], var.readers_edge)
    error_message = "readers_edge must be nlb or direct."
  }
}

variable "far" {
  description = "The other networks of the fabric: their contents, and the addresses of each tier."
  type = map(object({
    kind    = string
    edge    = list(string)
    brokers = list(string)
    store   = list(string)
  }))
  default = {}

  validation {
    condition     = alltrue([for far in values(var.far) : contains(["region", "proxy"], far.kind)])
    error_message = "far.*.kind must be region or proxy."
  }
}

variable "ports" {
  description = "Ports, as in Ansible's group_vars. A box's port for readers and a frontdesk's port are those behind a balancer."
  type = object({
    amqps         = optional(number, 5671)
    management    = optional(number, 15671)
    cql           = optional(number, 9042)
    gossip        = optional(number, 7000)
    readers       = optional(number, 8080)
    frontdesk     = optional(number, 8080)
    node_exporter = optional(number, 9100)
    metrics       = optional(number, 9106)
  })
  default = {}

  validation {
    condition     = alltrue([for port in values(var.ports) : port >= 1 && port <= 65535])
    error_message = "ports must be from 1 to 65535."
  }
}
