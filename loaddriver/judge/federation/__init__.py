"""How a federated HPA did: sums at each write, time to follow the load, moves. All pure."""
