"""Sessions with the operators of clusters, and the messages sent on them."""
