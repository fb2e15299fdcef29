"""Fast trainable layers, which the tests compare with the implementations in `theory`.

`attention` contains the attention layers, and `encodings` their positional encodings. Theorem 1 is
in `conv_as_attention` (a layer) and `convert` (layers and networks), and Theorem 2 in
`attention_as_conv` and `convert_back`. `tiles` and `shifts` avoid products with zero probabilities,
`state_dict` saves a converted layer as a convolution, and `mode` switches to evaluation mode.
"""
