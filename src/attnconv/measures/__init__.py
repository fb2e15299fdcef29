"""Measurements of attention heads, test accuracy, computing cost and converted networks."""
