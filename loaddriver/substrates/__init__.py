"""Substrates: where clusters and roles run, as local processes or in kind clusters."""
