"""The federated HPA controller: snapshots of members, writes, and status."""
