"""The inputs and outputs of training runs."""
