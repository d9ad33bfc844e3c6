"""What a plan holds, and that a seed gives the same plan everywhere."""
