"""The systems under test: each starts and stops one autoscaler for one cluster."""
