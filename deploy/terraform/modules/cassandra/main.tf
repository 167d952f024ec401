# A data centre of the store: the same number of nodes in each zone, which is a rack to Cassandra, and no public addresses.

module "machines" {
  source = "../machines"

  name               = var.name
  role               = "store"
  fabric             = var.fabric
  region             = var.region
  number             = var.number
  zones              = var.zones
  subnets            = var.subnets
  public             = false
  image_id           = var.image_id
  instance_type      = var.instance_type
  instance_profile   = var.instance_profile
  security_group_ids = var.security_group_ids
  kms_key_arn        = var.kms_key_arn
  data               = var.data
}
