"""The services of a fleet, as processes or over their gRPC APIs."""
