"""A run in a kind cluster: charts/scaletest is installed there, its runner gives the verdict."""
