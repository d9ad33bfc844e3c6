"""The harness that loads real clusters and judges how fast their pods bind."""
