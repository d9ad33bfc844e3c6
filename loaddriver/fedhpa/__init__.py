"""A federation within a run: its API server, its role, its workload, and the load on that.

The load is known beforehand; what the clusters' own HPAs and BigFleet make of it is measured.
"""
