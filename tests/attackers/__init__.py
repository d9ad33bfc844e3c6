"""Every credential tries what it is not allowed to do."""
