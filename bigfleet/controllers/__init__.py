"""Controllers that run in a cluster: the operator and the optional pod controller."""
