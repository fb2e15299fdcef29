"""Trainable layers and their fast execution; tests compare them with `theory`.

`attention` contains the layers, `conv` implements Theorem 1 for torch's convolutions, and
`converse` Theorem 2 for attention layers. `windows` and `shifts` avoid products with zero
probabilities. The package needs only torch.
"""
