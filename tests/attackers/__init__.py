"""Every credential tries what it has no right to."""
