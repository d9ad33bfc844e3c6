"""Tests of `loaddriver.inject`."""
