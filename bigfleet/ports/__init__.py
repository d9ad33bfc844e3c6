"""Interfaces to the outside, as Protocols: clock, provider, host, coordinator, files, stores."""
