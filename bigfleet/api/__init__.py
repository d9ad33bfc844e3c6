"""What crosses a process boundary: wire messages, custom resources, and how they are carried."""
