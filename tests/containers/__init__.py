"""Our images as real containers, and runs on kind."""
