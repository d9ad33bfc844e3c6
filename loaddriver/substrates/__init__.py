"""Where the harness runs: interface, and the local way with processes of its own."""
