"""How machines become Nodes."""
