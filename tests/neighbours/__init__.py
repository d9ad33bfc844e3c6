"""Bad operators, and what others may notice of them."""
