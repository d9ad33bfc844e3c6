"""The member clusters: which there are, what is known of each, and how it is written to."""
