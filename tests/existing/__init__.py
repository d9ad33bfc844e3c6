"""Clusters of other people as the place of a run."""
