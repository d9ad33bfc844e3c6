"""The history of a profile on a machine: one line for each run, in files that are kept in git."""
