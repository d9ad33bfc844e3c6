"""The closed loop on a virtual clock: production shard and provider, simulated clusters.

Pods -> roll-up -> cycle -> actions -> machines -> Nodes -> binding, and back through eviction, with
one source of randomness. Two runs of one seed are identical.
"""
