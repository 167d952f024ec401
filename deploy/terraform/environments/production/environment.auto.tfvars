# Production: oregon and dublin, three zones each, and a proxy cluster in singapore.
name = "newsfabric"

regions = {
  first = {
    name       = "oregon"
    aws_region = "us-west-2"
    cidr       = "10.1.0.0/16"
    zones      = ["us-west-2a", "us-west-2b", "us-west-2c"]
  }
  second = {
    name       = "dublin"
    aws_region = "eu-west-1"
    cidr       = "10.2.0.0/16"
    zones      = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
  }
}

proxy = {
  name       = "singapore"
  aws_region = "ap-southeast-1"
  nearest    = "oregon"
  cidr       = "10.3.0.0/16"
  zones      = ["ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"]
  number     = 3
}

# Three clients, so that gold still has two entrances when one is lost.
client = { number = 3 }
core   = { number = 3 }
store  = { number = 3, data_gb = 500 }
retail = { instance_type = "c7i.xlarge", readers_per_box = 50000, plan = { least = 3, most = 200 } }

deletion_protection = true
