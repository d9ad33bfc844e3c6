"""Placement of pods and gangs: free pools, topology constraints, gang domains."""
