"""A machine of an autoscaling group on AWS: what it does by itself, from first boot to end.

Terraform (``deploy/terraform/modules/retail``) writes ``instance.json``; nobody runs Ansible on
such a machine. Four programs, ``python -m operations.instance PROGRAM``:

- ``settle`` (on the box, at each boot) makes it a box: files from ``instance.json``, secrets from
  Secrets Manager, then it starts the services;
- ``renew`` (on the box, every five minutes) reads again what all boxes share there;
- ``leave`` (on the box, always) notices that AWS ends it, drains it, and says when that is done;
- ``admit`` (beside a core node) gives each new box its user on the core and its password.

Everything that decides is pure: :mod:`description`, :mod:`files`, :mod:`leaving`, :mod:`admitting`.
Secrets are in no user data, state, command line or log.
"""
