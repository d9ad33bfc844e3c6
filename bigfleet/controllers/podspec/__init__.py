"""A pod's scheduling requirements, read as kube-scheduler reads them. Pure.

Shared by the pod controller, which reads Pods, and the operator, which reads the pod templates of
DaemonSets.
"""
