"""Measures of heads, grids, accuracy, cost and conversions."""
