"""The Helm charts, rendered and installed with the real helm."""
