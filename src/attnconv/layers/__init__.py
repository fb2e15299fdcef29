"""Fast trainable layers, which the tests compare with the implementations in `theory`.

`attention` contains the layers, `conv` implements Theorem 1 for torch's convolutions, and
`converse` implements Theorem 2 for attention layers. `windows` and `shifts` avoid products with
zero probabilities. The package depends only on torch.
"""
