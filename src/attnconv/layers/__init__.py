"""Trainable layers and their fast execution, tested equal to `theory`. Requires torch only."""
