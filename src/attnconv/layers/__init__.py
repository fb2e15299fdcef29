"""Trainable layers and their fast execution, tested equal to `theory`, in torch alone.

`attention` holds the layers, `conv` Theorem 1 for torch's convolutions, `converse` Theorem 2 for
attention layers; `windows` and `shifts` avoid products with probabilities that are zero.
"""
