"""Compares what provider, shards, coordinator and clusters say of one fleet (`bigfleet audit`).

`collect` reads each source over its own API, `compare` finds differences and is pure.
"""
