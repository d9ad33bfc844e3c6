"""How long nobody leads when coordinators are killed."""
