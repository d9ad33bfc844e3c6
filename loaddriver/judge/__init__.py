"""From rows to a verdict: quantiles, gangs, time line, gates. Pure; it renders nothing."""
