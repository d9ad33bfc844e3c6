"""Anchors: a substitute for a gang scheduler, which nominates a rack for each same-rack group.

An anchor nominates a node for each pending pod of a group, all in one rack that can hold the whole
group. kube-scheduler tries a pod's nominated node first, and it alone binds: an anchor that bound
pods could race with kube-scheduler placing another pod of the group in another rack. Pods are never
held back for an anchor; the outcome records who placed the first pod of each group.
"""
