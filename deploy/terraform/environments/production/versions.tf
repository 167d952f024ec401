terraform {
  required_version = ">= 1.10.0"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.25.0, < 7.0.0"
    }
  }

  # terraform init -backend-config=backend.hcl. Bucket, region and key come from bootstrap's output.
  backend "s3" {
    key          = "newsfabric/production.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}
