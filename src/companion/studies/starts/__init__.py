"""Chapters 17 and 18, on vision transformers that start as a convolution."""
