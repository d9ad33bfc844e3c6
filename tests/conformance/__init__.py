"""The conformance suite, against right and against faulty providers."""
