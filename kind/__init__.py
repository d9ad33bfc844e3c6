"""kind clusters with BigFleet's images, also where no image registry answers."""
