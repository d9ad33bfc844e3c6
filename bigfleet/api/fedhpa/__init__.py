"""The custom resources of the federated HPA, and the RBAC of its members."""
