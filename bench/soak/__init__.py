"""Minutes of churn against a native gateway, whose memory and descriptors must stay flat."""
