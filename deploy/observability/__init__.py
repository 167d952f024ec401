"""What watches the fabric: dashboards, and beside them Prometheus's rules."""
