"""The pinned Kubernetes binaries that runs and tests start: versions and sources."""
