"""What runs inside the pods of a kind substrate."""
