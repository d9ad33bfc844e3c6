"""The decision loop: snapshot, decision, orders, hints, quotas."""
