# Named machines: brokers and stores. Each has an address and a data volume that outlive it, so a
# replaced machine is the same node to the others.

locals {
  machines = {
    for n in range(var.number) : "${var.name}-${n + 1}" => var.zones[n % length(var.zones)]
  }
}

resource "aws_network_interface" "this" {
  for_each = local.machines

  subnet_id       = var.subnets[each.value]
  security_groups = var.security_group_ids
  description     = each.key

  tags = { Name = each.key }
}

resource "aws_eip" "this" {
  for_each = var.public ? local.machines : {}

  domain            = "vpc"
  network_interface = aws_network_interface.this[each.key].id

  tags = { Name = each.key }
}

resource "aws_ebs_volume" "data" {
  for_each = local.machines

  availability_zone = each.value
  size              = var.data.gb
  type              = "gp3"
  iops              = var.data.iops
  throughput        = var.data.throughput
  encrypted         = true
  kms_key_id        = var.kms_key_arn

  tags = { Name = "${each.key}-data" }
}

resource "aws_instance" "this" {
  for_each = local.machines

  ami                  = var.image_id
  instance_type        = var.instance_type
  iam_instance_profile = var.instance_profile
  ebs_optimized        = true
  monitoring           = true
  user_data = join("\n", ["#cloud-config", yamlencode({
    write_files = [{
      path        = "/etc/newsfabric/instance.json"
      permissions = "0644"
      content     = jsonencode(merge(var.user_data, { name = each.key, role = var.role, region = var.region, zone = each.value }))
    }]
  })])

  primary_network_interface {
    network_interface_id = aws_network_interface.this[each.key].id
  }

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
    # Not for processes in a container or behind a proxy on the machine.
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = var.root_gb
    encrypted   = true
    kms_key_id  = var.kms_key_arn
  }

  tags = {
    Name   = each.key
    Host   = each.key
    Fabric = var.fabric
    Region = var.region
    Role   = var.role
    Zone   = each.value
  }

  lifecycle {
    # A new image must not replace all nodes of a cluster at once, and a new type must not stop them all.
    # -replace names one node, and site.yml restarts it with its data.
    ignore_changes = [ami, user_data, instance_type]
  }
}

# On today's machines the volume appears as another /dev/nvme…: Ansible's role disk finds it, makes a file system once, and mounts it.
resource "aws_volume_attachment" "data" {
  for_each = local.machines

  device_name = "/dev/sdf"
  volume_id   = aws_ebs_volume.data[each.key].id
  instance_id = aws_instance.this[each.key].id
  # The node is stopped first, so that no write is cut off in the middle.
  stop_instance_before_detaching = true
}
