"""Histories of profiles, in files that are kept in git."""
