"""The decision engine: its rules as stories, and against an independent reading of them."""
