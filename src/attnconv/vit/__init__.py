"""Functions that initialise timm's vision transformers as convolutions and read their attention.

timm is an optional dependency and is imported only when a function is called.
"""
