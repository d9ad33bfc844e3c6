"""What a pod asks of its machine, read as kube-scheduler reads it. Pure.

Shared by the pod controller, which reads Pods, and the operator, which reads the pod templates of
DaemonSets.
"""
