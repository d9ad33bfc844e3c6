"""The services of a fleet, each as a process or over its own wire."""
