"""Federated HPA: one autoscaler and one workload over many clusters.

`shares` decides, as pure functions, how a user's min and max are split and moved.
"""
