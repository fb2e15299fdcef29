"""Code that trains a model from the parameters of a run and writes the run's record."""
