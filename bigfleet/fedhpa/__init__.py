"""Federated HPA: one autoscaler and one workload over many clusters.

`shares` decides, purely, how a user's min and max are split and moved; the rest carries it out.
"""
