# Staging: the same shape as production, only smaller. A change that works here works there.
name = "nf-staging"

regions = {
  first = {
    name       = "oregon"
    aws_region = "us-west-2"
    cidr       = "10.60.0.0/16"
    zones      = ["us-west-2a", "us-west-2b", "us-west-2c"]
  }
  second = {
    name       = "dublin"
    aws_region = "eu-west-1"
    cidr       = "10.61.0.0/16"
    zones      = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
  }
}

proxy = {
  name       = "singapore"
  aws_region = "ap-southeast-1"
  nearest    = "oregon"
  cidr       = "10.62.0.0/16"
  zones      = ["ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"]
  number     = 1
}

client = { number = 1, instance_type = "t3.medium", data_gb = 20 }
core   = { number = 3, instance_type = "t3.large", data_gb = 20 }
store  = { number = 3, instance_type = "r7i.large", data_gb = 60 }
retail = { instance_type = "c7i.large", readers_per_box = 5000, plan = { least = 2, most = 6 } }

deletion_protection = false
