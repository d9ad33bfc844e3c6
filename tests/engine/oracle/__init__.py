"""A second, straightforward implementation of decisions; the engine must agree with it."""
