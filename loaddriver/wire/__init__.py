"""A fleet without Kubernetes: shards, coordinators and gRPC are real, operators are played.

It shows what shards do with more machines and clusters than a machine can run control planes for.
"""
