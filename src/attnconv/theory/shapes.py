"""Shape annotations such as `Float[Tensor, "*B T D_in"]`, which the tests check with jaxtyping.

The names are those of jaxtyping, but here they are aliases of `Annotated`, intended for readers and
type checkers. `*B` stands for any leading dimensions, `*#B` for dimensions that broadcast, and
`{size}` for the value of an argument.
"""

from typing import Annotated as Bool
from typing import Annotated as Float
from typing import Annotated as Int
from typing import Annotated as Shaped

__all__ = ["Bool", "Float", "Int", "Shaped"]
