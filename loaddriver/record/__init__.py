"""Timestamps from audit logs, watches and the shards' journals, joined to one row per pod.

All times are whole microseconds since 1970 (`*_micros`), so that the parts of a pod's wait add up
to the wait exactly.
"""
