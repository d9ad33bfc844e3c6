"""How a run goes through its phases, and what it notices of itself."""
