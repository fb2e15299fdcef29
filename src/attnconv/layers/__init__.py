"""Trainable layers with fast implementations, which the tests compare with `theory`.

`attention` contains the layers, `conv` implements Theorem 1 for torch's convolutions, and
`converse` implements Theorem 2 for attention layers. `windows` and `shifts` avoid products with
zero probabilities. The package needs only torch.
"""
