"""The provider that comes with BigFleet."""
