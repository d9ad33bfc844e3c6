"""Runs of the federated HPA: their plan and their gates."""
