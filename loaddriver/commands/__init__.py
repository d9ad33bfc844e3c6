"""The larger commands of `loaddriver`, one module each."""
