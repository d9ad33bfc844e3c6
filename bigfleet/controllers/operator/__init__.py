"""Speaks for one cluster: tells a shard what it needs, and carries out here what the shard decides.

It dials out and listens for nothing; it has no right to watch Pods.
"""
