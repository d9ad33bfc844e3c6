"""Views for `bigfleet why` and similar commands: needs, machines, ceilings."""
