"""kind clusters with BigFleet's images, with or without an image registry."""
