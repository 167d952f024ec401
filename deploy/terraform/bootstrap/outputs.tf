output "backend" {
  description = "For backend.hcl of an environment."
  value = {
    bucket     = aws_s3_bucket.state.id
    region     = var.aws_region
    kms_key_id = aws_kms_key.state.arn
  }
}
