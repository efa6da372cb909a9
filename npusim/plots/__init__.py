"""Plots: every function draws on the `Axes` it is given and returns it; the caller owns the figure."""
