"""What must hold after each cycle of every world."""
