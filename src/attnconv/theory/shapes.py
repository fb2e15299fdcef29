"""Shapes as annotations, `Float[Tensor, "*B T D_in"]`, which the tests enforce with jaxtyping.

The names are jaxtyping's, where they are as here `Annotated` to who reads types alone. `*B` stands
for any dimensions in front, `*#B` for as many or fewer, `{size}` for an argument's value.
"""

from typing import Annotated as Bool
from typing import Annotated as Float
from typing import Annotated as Int
from typing import Annotated as Shaped

__all__ = ["Bool", "Float", "Int", "Shaped"]
