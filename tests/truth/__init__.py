"""What runs report against what really happened."""
