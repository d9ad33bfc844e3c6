"""Which machine goes where: pure functions of a columnar snapshot. No clock, no I/O, no objects."""
