"""The pinned Kubernetes binaries that runs and tests start: which, and how they are got."""
