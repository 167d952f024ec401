output "hosts" {
  description = "Name to address, public address (null without one) and zone."
  value = {
    for name, zone in local.machines : name => {
      address        = aws_network_interface.this[name].private_ip
      public_address = var.public ? aws_eip.this[name].public_ip : null
      zone           = zone
      instance_id    = aws_instance.this[name].id
    }
  }
}
