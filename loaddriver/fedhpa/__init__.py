"""A federation within a run: its API server, its role, its workload, and the load on it.

The load is planned; the reaction of the clusters' HPAs and of BigFleet is measured.
"""
