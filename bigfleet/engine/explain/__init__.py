"""Why a need is short, and the rows of a shortfall report."""
