# terraform init -backend-config=backend.hcl. Bucket and region come from bootstrap's output.
terraform {
  backend "s3" {
    key          = "newsfabric/staging.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}
