mock_provider "aws" {
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:us-west-2:123456789012:key/k" }
  }
}

variables {
  name       = "newsfabric-oregon"
  roles      = ["client", "core", "store", "retail"]
  group_name = "newsfabric-oregon-retail"
  account_id = "123456789012"
  aws_region = "us-west-2"
}

run "the_core_may_what_its_scaler_calls_and_nothing_else" {
  assert {
    condition = toset(flatten([for statement in jsondecode(aws_iam_role_policy.this["core"].policy).Statement : statement.Action])) == toset([
      "autoscaling:DescribeAutoScalingGroups",
      "autoscaling:SetDesiredCapacity",
      "autoscaling:TerminateInstanceInAutoScalingGroup",
      "cloudwatch:PutMetricData",
      "ec2:DescribeInstances",
      "kms:Decrypt",
      "kms:GenerateDataKey",
      "secretsmanager:CreateSecret",
      "secretsmanager:DeleteSecret",
      "secretsmanager:GetSecretValue",
      "secretsmanager:TagResource",
    ])
    error_message = "docs/scaling.md lists the calls of driver aws, operations/instance/cloud.py those of admission; secrets and their key are all other rights"
  }
}

run "it_may_act_on_its_own_group_alone" {
  assert {
    condition = [for statement in jsondecode(aws_iam_role_policy.this["core"].policy).Statement : statement.Resource if statement.Sid == "ScalerActs"] == [
      ["arn:aws:autoscaling:us-west-2:123456789012:autoScalingGroup:*:autoScalingGroupName/newsfabric-oregon-retail"]
    ]
    error_message = "a scaler could end other machines"
  }

  assert {
    condition     = [for statement in jsondecode(aws_iam_role_policy.this["core"].policy).Statement : statement.Condition.StringEquals["cloudwatch:namespace"] if statement.Sid == "ScalerTells"] == [["newsfabric"]]
    error_message = "a scaler could write other metrics"
  }
}

run "a_box_may_end_its_hook_and_read_its_own_secrets" {
  assert {
    condition = toset(flatten([for statement in jsondecode(aws_iam_role_policy.this["retail"].policy).Statement : statement.Action])) == toset([
      "autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat", "kms:Decrypt", "secretsmanager:GetSecretValue"
    ])
    error_message = "an intruder on a box could do more than end its hook"
  }

  assert {
    condition     = [for statement in jsondecode(aws_iam_role_policy.this["retail"].policy).Statement : statement.Condition.StringEquals["kms:ViaService"] if statement.Sid == "SecretsAreDecrypted"] == [["secretsmanager.us-west-2.amazonaws.com"]]
    error_message = "a box could decrypt data other than secrets of Secrets Manager"
  }
}

run "no_box_reads_another_boxs_password" {
  assert {
    condition     = [for statement in jsondecode(aws_iam_role_policy.this["retail"].policy).Statement : statement.Condition.StringEquals["aws:ResourceTag/Box"] if statement.Sid == "BoxReadsItsPassword"] == [["$${ec2:SourceInstanceARN}"]]
    error_message = "an intruder on a box could log in as another box"
  }

  assert {
    condition     = [for statement in jsondecode(aws_iam_role_policy.this["core"].policy).Statement : statement.Resource if statement.Sid == "BoxesAreAdmitted"] == [["arn:aws:secretsmanager:us-west-2:123456789012:secret:newsfabric-oregon/box/*"]]
    error_message = "a core node could change secrets that aren't boxes'"
  }
}

run "a_box_reads_what_all_boxes_share_and_no_other_secret" {
  assert {
    condition = [for statement in jsondecode(aws_iam_role_policy.this["retail"].policy).Statement : statement.Resource if statement.Sid == "BoxReadsWhatAllShare"] == [[
      "arn:aws:secretsmanager:us-west-2:123456789012:secret:newsfabric-oregon/tls/retail-??????",
      "arn:aws:secretsmanager:us-west-2:123456789012:secret:newsfabric-oregon/store/reader-??????",
    ]]
    error_message = "a box reads other secrets than those that Ansible writes for it"
  }
}

run "who_asks_aws_nothing_has_no_policy" {
  assert {
    condition     = join(" ", keys(aws_iam_role_policy.this)) == "core retail" && join(" ", keys(aws_iam_instance_profile.this)) == "client core retail store"
    error_message = "a machine has rights that it doesn't use"
  }
}

run "without_boxes_nobody_may_anything" {
  variables {
    roles      = ["proxy"]
    group_name = null
  }

  assert {
    condition     = length(aws_iam_role_policy.this) == 0
    error_message = "a proxy has rights that it doesn't use"
  }
}

run "what_is_encrypted_is_so_with_a_key_that_turns" {
  assert {
    condition     = aws_kms_key.this.enable_key_rotation
    error_message = "the region's key is never rotated"
  }
}

run "no_statement_allows_everything" {
  assert {
    condition     = alltrue(flatten([for policy in aws_iam_role_policy.this : [for statement in jsondecode(policy.policy).Statement : [for action in statement.Action : !strcontains(action, "*")]]]))
    error_message = "a machine's policy has a wildcard in an action"
  }
}

run "an_unknown_role_is_refused" {
  command = plan

  variables {
    roles = ["president"]
  }

  expect_failures = [var.roles]
}

run "a_namespace_of_aws_is_refused" {
  command = plan

  variables {
    cloudwatch_namespace = "AWS/EC2"
  }

  expect_failures = [var.cloudwatch_namespace]
}

run "an_account_that_is_none_is_refused" {
  command = plan

  variables {
    account_id = "ours"
  }

  expect_failures = [var.account_id]
}

run "a_region_that_is_none_is_refused" {
  command = plan

  variables {
    aws_region = "oregon"
  }

  expect_failures = [var.aws_region]
}

run "a_partition_that_aws_has_not_is_refused" {
  command = plan

  variables {
    partition = "moon"
  }

  expect_failures = [var.partition]
}

run "a_name_with_capitals_is_refused" {
  command = plan

  variables {
    name = "Newsfabric"
  }

  expect_failures = [var.name]
}
