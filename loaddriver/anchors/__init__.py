"""A stand-in for the gang scheduler of a real fleet: it nominates a rack for a same-rack group.

An anchor is a nominated node for each waiting pod of a group, all in one rack that can hold the
whole group. kube-scheduler tries a pod's nominated node first, and alone binds. Whoever binds a pod
itself can be a moment behind kube-scheduler, which is just placing another one of the group in
another rack: so no anchor binds anything. Pods are never held back for it, and whoever is first is
counted.
"""
