"""Functions that initialise vision transformers as convolutions and read their attention.

timm, transformers, torchvision and vit-pytorch are optional and are not imported here.
"""

from importlib.util import find_spec


def expect_timm() -> None:
    """If timm is missing, raise an ImportError that says how to install it."""
    if find_spec("timm") is None:
        raise ImportError(
            "vision transformers need timm, which is not installed: pip install timm", name="timm"
        )
