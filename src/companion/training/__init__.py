"""Training: from the parameters of a run to its record."""
