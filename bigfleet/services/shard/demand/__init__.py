"""Roll-ups of clusters as rows of needs, and the guard against sudden drops."""
