# The machines of a cluster of brokers, each of which stands alone. Each has a public address: publishers connect to clients and proxies,
# and services beside the core ask the internet for token keys and other regions' boards. Module firewall decides who may connect.

module "machines" {
  source = "../machines"

  name               = var.name
  role               = var.role
  fabric             = var.fabric
  region             = var.region
  number             = var.number
  zones              = var.zones
  subnets            = var.subnets
  public             = true
  image_id           = var.image_id
  instance_type      = var.instance_type
  instance_profile   = var.instance_profile
  security_group_ids = var.security_group_ids
  kms_key_arn        = var.kms_key_arn
  data               = var.data
}
