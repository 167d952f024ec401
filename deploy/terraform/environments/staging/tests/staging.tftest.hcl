# Whether each value of this environment is one that its modules take.

mock_provider "aws" {
  alias = "oregon"

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

mock_provider "aws" {
  alias = "dublin"

  mock_data "aws_region" {
    defaults = { region = "eu-west-1" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
}

mock_provider "aws" {
  alias = "singapore"

  mock_data "aws_region" {
    defaults = { region = "ap-southeast-1" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
}

variables {
  domain  = "staging.news.example.com"
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
  command = plan

  assert {
    condition     = alltrue([for region in ["oregon", "dublin"] : strcontains(join(" ", output.settings.newsfabric_scaler_options[region]), "--least 2 --most 6 ")])
    error_message = "a region has other boxes than this environment says"
  }

  assert {
    condition     = output.settings.newsfabric_gateways_at == ["readers.dublin.staging.news.example.com", "readers.oregon.staging.news.example.com"]
    error_message = "readers would be sent elsewhere, or nowhere"
  }
}

run "publishers_from_anywhere_are_refused" {
  command = plan

  variables {
    publisher_cidrs = ["0.0.0.0/0"]
  }

  expect_failures = [var.publisher_cidrs]
}
