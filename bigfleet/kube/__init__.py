"""Kubernetes as bytes: the official client for connections, auth and TLS; msgspec for decoding."""
