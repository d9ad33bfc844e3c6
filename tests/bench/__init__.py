"""Tests of the benchmark itself; the engine is measured by `make bench`."""
