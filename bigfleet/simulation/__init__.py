"""The closed loop on a virtual clock: production shard and provider, clusters that only pretend.

Pods -> roll-up -> cycle -> orders -> machines -> Nodes -> binding, and back through eviction, with
one source of randomness. Two runs of one seed are equal to the byte.
"""
