"""One module for each command of `loaddriver` that is more than a few lines."""
