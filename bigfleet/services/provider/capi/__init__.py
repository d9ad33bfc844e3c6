"""A provider whose machines are Cluster API's: one `Machine` for each machine in service.

The management cluster is its only store. What it offers comes from a file.
"""
