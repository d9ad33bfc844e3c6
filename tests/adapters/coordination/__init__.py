"""Leases and what is kept in etcd."""
