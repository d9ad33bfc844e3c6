"""Wire messages, custom resources, and how they are transported and installed."""
