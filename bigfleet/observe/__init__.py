"""What BigFleet shows of itself: metrics (each name defined once), logs, health, stories."""
