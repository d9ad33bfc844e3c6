"""Kubernetes binaries: pins, downloads, builds, the cache."""
