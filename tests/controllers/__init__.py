"""The cluster's side: pod controller and operator."""
