"""What is measured of heads, grids, content, cost and conversions."""
