"""The Kubernetes client: watches that resume."""
