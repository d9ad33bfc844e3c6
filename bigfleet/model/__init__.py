"""Domain model: machines and their lifecycle, needs, resources, errors. No I/O."""
