"""What BigFleet talks about: machines and their lifecycle, needs, resources, errors. No I/O."""
