"""Karpenter as the system under test."""
