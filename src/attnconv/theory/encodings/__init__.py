"""Positional encodings (section 2.3, equation (9), appendix E).

Letters: N_h heads, D_p encoding dimension, n spatial dimensions, delta = k - q the shift from query
to key pixel.

An encoding for position-only attention turns shifts `(..., n)` into scores `(N_h, ...)`: the last
term of equation (8), v^(h) . r_delta, up to a constant per head that the softmax ignores. Where the
score is a row term plus a column term the attention is a product of a row and a column softmax;
such an encoding is a `SeparableEncoding`.
"""

from .absolute import LearnedAbsoluteEncoding, sinusoidal_encoding
from .gaussian import (
    CENTER_STD,
    GeneralizedQuadraticEncoding,
    QuadraticEncoding,
    generalized_quadratic_encoding,
    generalized_quadratic_target,
    quadratic_encoding,
    quadratic_target,
)
from .learned import (
    LearnedRelativeEncoding,
    LearnedShiftEmbedding,
    learned_content_parts,
    learned_content_scores,
    learned_shift_scores,
)
from .position import (
    PositionEncoding,
    RelativeBias,
    SeparableEncoding,
    keys_in_reach,
    softmax_without_tails,
)
