"""The Kubernetes API: the official client for connections, auth and TLS; msgspec for decoding."""
