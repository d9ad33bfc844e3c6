"""The phases of a decision: assign, preempt, reclaim, and what the next one gets."""
