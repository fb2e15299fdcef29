"""Measures of heads, grids of heads, accuracy, cost and conversions."""
