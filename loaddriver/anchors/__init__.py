"""A stand-in for the gang scheduler of a real fleet: binds one pod of a same-rack group.

The anchor tells kube-scheduler which rack the rest must join. Pods are never held back for it:
kube-scheduler binds a group's first pod itself where no required peer exists yet, and whoever is
first is counted. What anchors add is the choice of a rack that can hold the whole group.
"""
