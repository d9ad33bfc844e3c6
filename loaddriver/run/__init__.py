"""One run from start to verdict.

Read in the order `arms`, `arm_runner`, `measurement`, `load_phases`, `ramp_pacing`, `conclusion`.
"""
