"""The federated workload's controller: one Deployment or ReplicaSet in each cluster that has it."""
