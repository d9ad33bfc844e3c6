"""Renders the files of a run: the summary, the report, a JUnit file, the pods."""
