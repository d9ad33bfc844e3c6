"""One run from start to verdict: what is started, when load is released, how it ends."""
