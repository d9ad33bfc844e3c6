"""The federated workload controller: a Deployment or ReplicaSet in each chosen cluster."""
