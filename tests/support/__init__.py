"""What tests of several packages share: real roles to start, stand-ins, waiting, CPU time."""
