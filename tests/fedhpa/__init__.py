"""The federated HPA, on played and on real clusters."""
