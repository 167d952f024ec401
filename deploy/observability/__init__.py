"""The monitoring of the fabric: dashboards, and beside them Prometheus's rules."""
