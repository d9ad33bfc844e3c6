"""What the shells need from outside, as Protocols: clock, provider, store."""
