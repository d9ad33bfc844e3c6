"""The phases of a decision: assign, preempt, reclaim, carry over."""
