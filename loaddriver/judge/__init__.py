"""From rows to a verdict: quantiles, gangs, timeline, gates. Pure; renders nothing."""
