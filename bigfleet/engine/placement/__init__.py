"""Where pods and gangs go: free pools, topology constraints, gang domains."""
