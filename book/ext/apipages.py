"""The pages of the code: Sphinx's autodoc and viewcode, with signatures that can be read."""

import re
from functools import partial


def signature_in_short(app, what, name, obj, options, signature, returns):
    """`Tensor['*B T D']`, where Sphinx would print `Annotated[Tensor, '*B T D']`; and no long list
    of a model's fields."""
    if hasattr(obj, "model_fields"):
        return "", None
    short = partial(re.sub, r"(?:\w+\.)*Annotated\[(?:\w+\.)*Tensor, ('[^']*')\]", r"Tensor[\1]")
    return signature and short(signature), returns and short(returns)


def fields_in_full(app, what, name, obj, options, lines):
    """A class of parameters: the fields that it adds, with what is said of each."""
    own = [name for name in getattr(obj, "model_fields", {}) if name in obj.__annotations__]
    for field in own:
        if description := obj.model_fields[field].description:
            lines += [f"- `{field}`: {description}"]


def fields_without_numbers(app, what, name, obj, options, lines):
    """A named tuple's fields: their names say what they are, Python's own text only their place."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.viewcode")
    app.connect("autodoc-process-signature", signature_in_short)
    app.connect("autodoc-process-docstring", fields_in_full)
    app.connect("autodoc-process-docstring", fields_without_numbers)
    return {"parallel_read_safe": True}
