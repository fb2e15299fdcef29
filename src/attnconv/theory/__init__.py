"""Sections 2 and 3 and appendices B, D and E of the paper as literal, dense code.

It needs only torch.

Read the modules in this order: `grid` (pixels and shifts), `attention` (equations (1) to (8)),
`encodings`, `theorem1` (with Lemmas 1 and 2), `theorem2` (the converse), `expressivity` (Lemma 3).
`attnconv.layers` contains fast versions of the same functions; tests compare the two.
"""
