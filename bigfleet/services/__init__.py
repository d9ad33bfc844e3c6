"""BigFleet's gRPC roles: a servicer delegates, a handler decides."""
