"""Commands for people: each module adds its own parser and says what to run."""
