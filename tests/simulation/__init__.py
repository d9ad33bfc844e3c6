"""The simulation and its explorer."""
