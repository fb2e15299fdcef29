"""Functions that start timm's vision transformers as convolutions and read their attention.

timm is an optional dependency, which is imported only when a function is called.
"""
