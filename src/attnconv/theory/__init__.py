"""Literal implementations of sections 2 and 3 and appendices B, D and E of the paper.

They compute dense attention maps and depend only on torch.

Read the modules in this order: `grid` (pixels and offsets), `attention` (equations (1) to (8)),
`encodings`, `theorem1` (with Lemmas 1 and 2), `theorem2` (the converse), `expressivity` (Lemma 3),
`rotary` (Theorem 1 for rotary encodings, which the paper does not consider).
The tests compare these functions with the fast versions in `attnconv.layers`.
"""
