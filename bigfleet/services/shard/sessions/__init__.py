"""Sessions with the operators of clusters, and what is sent to them."""
