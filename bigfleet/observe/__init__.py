"""Observability: metrics, logs and health endpoints."""
