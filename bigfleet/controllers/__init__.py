"""The loops beside a cluster's API server: the operator and the optional pod controller."""
