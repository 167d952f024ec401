# Planned only: the bucket refuses to be destroyed, as the end of an applied test would do.

mock_provider "aws" {}

variables {
  bucket = "example-newsfabric-state"
}

run "the_state_is_encrypted_and_old_versions_stay" {
  command = plan

  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.state.rule).apply_server_side_encryption_by_default).sse_algorithm == "aws:kms" && one(aws_s3_bucket_versioning.state.versioning_configuration).status == "Enabled"
    error_message = "the state is public, or a mistake can't be undone"
  }

  assert {
    condition     = aws_s3_bucket_public_access_block.state.block_public_policy && aws_s3_bucket_public_access_block.state.restrict_public_buckets
    error_message = "the bucket could be made public"
  }
}

run "a_bucket_s3_doesnt_have_is_refused" {
  command = plan

  variables {
    bucket = "Example_State"
  }

  expect_failures = [var.bucket]
}

run "a_region_aws_doesnt_have_is_refused" {
  command = plan

  variables {
    aws_region = "oregon"
  }

  expect_failures = [var.aws_region]
}

run "old_versions_kept_for_a_day_are_refused" {
  command = plan

  variables {
    old_version_days = 1
  }

  expect_failures = [var.old_version_days]
}
