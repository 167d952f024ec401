# Rights of machines, the key that encrypts their data, and the names of secrets.
#
# Secrets aren't made here: they would be in the state. Ansible (site.yml, rotate-secrets.yml) writes the secrets that
# all boxes share, and core nodes write each box's password; no other machine reads any.

locals {
  group_arn = var.group_name == null ? null : "arn:${var.partition}:autoscaling:${var.aws_region}:${var.account_id}:autoScalingGroup:*:autoScalingGroupName/${var.group_name}"

  boxes = var.group_name != null

  # The calls of wholesale/scaler/drivers, and nothing else. Scalers run beside the core's
  # nodes. Describe calls can't be limited to one group: AWS has no resource for them.
  scaler = [
    {
      Sid       = "ScalerLooks"
      Effect    = "Allow"
      Action    = ["autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances"]
      Resource  = ["*"]
      Condition = {}
    },
    {
      Sid       = "ScalerActs"
      Effect    = "Allow"
      Action    = ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"]
      Resource  = [local.group_arn]
      Condition = {}
    },
    {
      Sid       = "ScalerTells"
      Effect    = "Allow"
      Action    = ["cloudwatch:PutMetricData"]
      Resource  = ["*"]
      Condition = { StringEquals = { "cloudwatch:namespace" = [var.cloudwatch_namespace] } }
    },
  ]

  secret_names = { tls = "${var.name}/tls/retail", store = "${var.name}/store/reader", boxes = "${var.name}/box/" }
  secret_arns  = "arn:${var.partition}:secretsmanager:${var.aws_region}:${var.account_id}:secret:"
  # Secrets Manager appends a dash and six characters to a secret's ARN.
  shared_secrets = [for name in [local.secret_names.tls, local.secret_names.store] : "${local.secret_arns}${name}-??????"]
  boxes_secrets  = "${local.secret_arns}${local.secret_names.boxes}*"

  # operations/instance: a box reports to its own group that it drains and that it has drained, and reads the shared secrets and
  # the password that the core made for it. The tag Box is that machine's ARN, so no box reads another's password.
  box = [
    {
      Sid       = "BoxEndsItsHook"
      Effect    = "Allow"
      Action    = ["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"]
      Resource  = [local.group_arn]
      Condition = {}
    },
    {
      Sid       = "BoxReadsItsPassword"
      Effect    = "Allow"
      Action    = ["secretsmanager:GetSecretValue"]
      Resource  = [local.boxes_secrets]
      Condition = { StringEquals = { "aws:ResourceTag/Box" = ["$${ec2:SourceInstanceARN}"] } }
    },
    {
      Sid       = "BoxReadsWhatAllShare"
      Effect    = "Allow"
      Action    = ["secretsmanager:GetSecretValue"]
      Resource  = local.shared_secrets
      Condition = {}
    },
    {
      Sid       = "SecretsAreDecrypted"
      Effect    = "Allow"
      Action    = ["kms:Decrypt"]
      Resource  = [aws_kms_key.this.arn]
      Condition = { StringEquals = { "kms:ViaService" = ["secretsmanager.${var.aws_region}.amazonaws.com"] } }
    },
  ]

  # Beside the core: makes and deletes boxes' passwords.
  admission = [
    {
      Sid       = "BoxesAreAdmitted"
      Effect    = "Allow"
      Action    = ["secretsmanager:CreateSecret", "secretsmanager:DeleteSecret", "secretsmanager:GetSecretValue", "secretsmanager:TagResource"]
      Resource  = [local.boxes_secrets]
      Condition = {}
    },
    {
      Sid       = "PasswordsAreEncrypted"
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
      Resource  = [aws_kms_key.this.arn]
      Condition = { StringEquals = { "kms:ViaService" = ["secretsmanager.${var.aws_region}.amazonaws.com"] } }
    },
  ]

  # Encoded as JSON in between: Terraform's lists hold one type, and statements differ.
  statements = {
    for role in var.roles : role => [
      for statement in concat(
        [for each in local.scaler : jsonencode(each) if local.boxes && role == "core"],
        [for each in local.admission : jsonencode(each) if local.boxes && role == "core"],
        [for each in local.box : jsonencode(each) if local.boxes && role == "retail"],
      ) : jsondecode(statement)
    ]
  }

  root                = "arn:${var.partition}:iam::${var.account_id}:root"
  service_linked_role = "arn:${var.partition}:iam::${var.account_id}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
}

resource "aws_kms_key" "this" {
  description             = "${var.name}: volumes, secrets, logs"
  enable_key_rotation     = true
  deletion_window_in_days = 30
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "AccountsPoliciesDecide"
        Effect    = "Allow"
        Principal = { AWS = local.root }
        Action    = "kms:*"
        Resource  = "*"
      },
      {
        # The group encrypts boxes' volumes. Other machines' volumes are encrypted as the operator who applies this.
        Sid       = "VolumesOfBoxes"
        Effect    = "Allow"
        Principal = { AWS = local.boxes ? local.service_linked_role : local.root }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncrypt*"]
        Resource  = "*"
      },
      {
        Sid       = "VolumesOfBoxesAreAttached"
        Effect    = "Allow"
        Principal = { AWS = local.boxes ? local.service_linked_role : local.root }
        Action    = "kms:CreateGrant"
        Resource  = "*"
        Condition = { Bool = { "kms:GrantIsForAWSResource" = "true" } }
      },
      {
        Sid       = "Logs"
        Effect    = "Allow"
        Principal = { Service = "logs.${var.aws_region}.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        Resource  = "*"
        Condition = { ArnLike = { "kms:EncryptionContext:aws:logs:arn" = "arn:${var.partition}:logs:${var.aws_region}:${var.account_id}:log-group:/newsfabric/${var.name}/*" } }
      },
      {
        Sid       = "AlarmsReachTheTopic"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey*"]
        Resource  = "*"
        Condition = { StringEquals = { "aws:SourceAccount" = var.account_id } }
      },
    ]
  })
}

resource "aws_kms_alias" "this" {
  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.this.key_id
}

resource "aws_iam_role" "this" {
  for_each = var.roles

  name = "${var.name}-${each.key}"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  for_each = { for role, statements in local.statements : role => statements if length(statements) > 0 }

  name = "newsfabric"
  role = aws_iam_role.this[each.key].id
  # An empty condition is invalid.
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [for statement in each.value : { for key, value in statement : key => value if key != "Condition" || length(value) > 0 }]
  })
}

resource "aws_iam_instance_profile" "this" {
  for_each = var.roles

  name = "${var.name}-${each.key}"
  role = aws_iam_role.this[each.key].name
}
