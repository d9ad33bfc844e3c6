"""Tests of sizing and preflight."""
