"""A run inside a cluster: charts/scaletest starts every part, the runner finds them by name."""
