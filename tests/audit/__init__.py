"""Tests of `bigfleet.audit`."""
