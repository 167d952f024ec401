"""Metrics of the fabric, dashboards of them, and beside these Prometheus's rules."""
