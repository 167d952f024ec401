"""The process of a gateway: its settings, metrics, tasks and descriptors."""
