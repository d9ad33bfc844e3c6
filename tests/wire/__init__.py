"""A fleet without Kubernetes: what is played, what is read, and the verdict."""
