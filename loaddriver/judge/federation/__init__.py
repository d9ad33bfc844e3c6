"""Judging a federated HPA: sums at each write, scaling response, moves. Pure."""
