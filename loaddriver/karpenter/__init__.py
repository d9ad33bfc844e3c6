"""Karpenter with its kwok provider as the system under test, in place of BigFleet."""
