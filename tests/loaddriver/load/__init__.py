"""Tests of the load process."""
