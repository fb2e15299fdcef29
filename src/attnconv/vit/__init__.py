"""Functions for timm's vision transformers: start one as a convolution, and read its attention.

timm is an optional dependency, imported when a function is called.
"""
