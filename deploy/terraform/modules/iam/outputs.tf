output "instance_profiles" {
  description = "Group of machines to its instance profile's name."
  value       = { for role, profile in aws_iam_instance_profile.this : role => profile.name }
}

output "instance_profile_arns" {
  description = "Group of machines to its instance profile's ARN."
  value       = { for role, profile in aws_iam_instance_profile.this : role => profile.arn }
}

output "cloudwatch_namespace" {
  description = "The only namespace in which scalers may write metrics."
  value       = var.cloudwatch_namespace
}

output "kms_key_arn" {
  description = "Key for volumes, secrets and logs."
  value       = aws_kms_key.this.arn
}

output "secret_names" {
  description = "Secrets that boxes read in Secrets Manager: tls and store are names of secrets, boxes is the prefix of single boxes' secrets."
  value       = local.secret_names
}

output "statements" {
  description = "Group of machines to its rights."
  value       = local.statements
}
