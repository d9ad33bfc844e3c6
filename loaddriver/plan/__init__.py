"""From a profile and a seed to every request and its due time. Pure."""
