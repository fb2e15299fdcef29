"""Code that trains a model with a run's parameters and writes the run's record."""
