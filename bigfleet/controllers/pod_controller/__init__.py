"""The pod controller: creates a CapacityRequest for each Pod. Optional; only it watches Pods."""
