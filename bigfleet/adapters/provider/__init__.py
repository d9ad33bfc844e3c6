"""Capacity providers: over gRPC and in memory."""
