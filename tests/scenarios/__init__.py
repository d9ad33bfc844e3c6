"""Plain objects that any autoscaler can be held to: scenarios, how they are played and judged."""
