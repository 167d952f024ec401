# Checks that modules accept each value of environment.auto.tfvars.

mock_provider "aws" {
  alias = "any"

  mock_data "aws_region" {
    defaults = { region = "us-west-2" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
}

override_data {
  target = module.second.data.aws_region.here
  values = { region = "eu-west-1" }
}

variables {
  domain  = "news.example.com"
  zone_id = "Z0123456789ABCDEFGHIJ"
  images = {
    oregon    = "ami-0123456789abcdef0"
    dublin    = "ami-0123456789abcdef1"
    singapore = "ami-0123456789abcdef2"
  }
  certificates = {
    oregon = "arn:aws:acm:us-west-2:123456789012:certificate/c"
    dublin = "arn:aws:acm:eu-west-1:123456789012:certificate/c"
  }
  publisher_cidrs = ["203.0.113.0/24"]
  origins         = ["https://www.example.com"]
  tokens          = { keys = "https://login.example.com/jwks.json", audience = "newsfabric", issuer = "https://login.example.com" }
}

run "both_regions_have_boxes_and_frontdesks" {
  command   = plan
  providers = { aws.first = aws.any, aws.second = aws.any, aws.proxy = aws.any }

  assert {
    condition     = alltrue([for options in output.settings.newsfabric_scaler_options : strcontains(join(" ", options), "--least ${var.retail.plan.least} --most ${var.retail.plan.most} ")])
    error_message = "a region's boxes differ from this environment's"
  }

  assert {
    condition     = output.settings.newsfabric_gateways_at == ["readers.dublin.news.example.com", "readers.oregon.news.example.com"]
    error_message = "readers would be sent to a wrong region, or nowhere"
  }
}
