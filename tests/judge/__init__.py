"""Gates, quantiles, coverage, causes: how a run is judged."""
