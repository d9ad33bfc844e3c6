"""The records that all services share."""
