"""What happened, and when: stamps from audit logs, watches and the shard's journal, joined to rows.

All times are whole microseconds since 1970 (`*_micros`), so that the parts of a pod's wait add up
to the wait exactly.
"""
