"""The existing substrate: clusters that others run, which are left as they were found."""
