"""Assigns machines to needs: pure functions of a columnar snapshot, without clock or I/O."""
