"""A machine of an autoscaling group on AWS: its work without an operator, from first boot to end.

Terraform (``deploy/terraform/modules/retail``) writes ``instance.json``; Ansible isn't run on such
a machine. Four programs, ``python -m operations.instance PROGRAM``:

- ``settle`` (on the box, at each boot) makes it a box: files from ``instance.json``, secrets from
  Secrets Manager, then it starts the services;
- ``renew`` (on the box, every five minutes) reads again the secrets that all boxes share;
- ``leave`` (on the box, always) notices that AWS ends it, drains it, and notifies AWS at the end;
- ``admit`` (beside a core node) gives each new box its user on the core and its password.

The decisions are pure: :mod:`description`, :mod:`files`, :mod:`leaving`, :mod:`admitting`. Secrets
are in no user data, state, command line or log.
"""
