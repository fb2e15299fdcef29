"""Pages of the code's public names, from Sphinx's autodoc and viewcode, with readable signatures.

:::{api} attnconv.theory attnconv.cost
:::

The directive makes a section for each module of these packages that defines a public class or
function. The modules of a package come in the order in which its docstring names them in
backticks; modules that it does not name follow in alphabetical order.
"""

import ast
import re
from functools import partial
from importlib import import_module
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.ext.autodoc import INSTANCEATTR, UNINITIALIZED_ATTR
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util.docutils import SphinxDirective

SOURCE = Path(__file__).parents[2] / "src"
# attributes in one list, as parameters are, instead of one entry for each
SECTIONS = Config(napoleon_custom_sections=[("Attributes", "params_style")])
SECTION = """
## `{module}`

```{{eval-rst}}
.. automodule:: {module}
   :members:
   :exclude-members: LineFigure, model_config
```
"""


def modules_in(part: str) -> dict[str, Path]:
    """Return the modules of a package, or the given module, that define a public name.

    Raises ValueError for a part that does not exist.
    """
    place = SOURCE / part.replace(".", "/")
    found = sorted(place.rglob("*.py")) or [place.with_suffix(".py")]
    if not found[0].exists():
        raise ValueError(f"a page names the module {part}, which does not exist")
    order = ast.get_docstring(ast.parse(found[0].read_text())) or ""
    named = {path: order.find(f"`{path.stem}`") for path in found}
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(found, key=lambda path: (named[path] < 0, named[path]))
        if re.search(r"^(class|def) [A-Za-z]", path.read_text(), re.M)
    }


class Api(SphinxDirective):
    """Sections with the docstrings of all modules of some packages."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        modules = {
            module: path
            for part in self.arguments[0].split()
            for module, path in modules_in(part).items()
        }
        for path in modules.values():
            self.env.note_dependency(str(path))
        text = "".join(SECTION.format(module=module) for module in modules)
        sections = nodes.Element()
        lines = StringList(text.splitlines(), self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, sections, match_titles=True)
        return sections.children


def signature_in_short(app, what, name, obj, options, signature, returns):
    """Return a signature with `Tensor['*B T D']` in place of `Annotated[Tensor, '*B T D']`.

    A class of parameters gets no signature, which would be a long list of fields.
    """
    if hasattr(obj, "model_fields"):
        return "", None
    short = partial(re.sub, r"(?:\w+\.)*Annotated\[(?:\w+\.)*Tensor, ('[^']*')\]", r"Tensor[\1]")
    return signature and short(signature), returns and short(returns)


def sections_as_lists(app, what, name, obj, options, lines):
    """Turn sections of a docstring, such as `Args:` and `Example:`, into lists and headings.

    As an extension, napoleon would also change descriptions of constants that contain a colon.
    """
    if what in ("function", "method", "class"):
        lines[:] = GoogleDocstring(lines, SECTIONS, what=what).lines()


def fields_in_full(app, what, name, obj, options, lines):
    """Add the fields that a class of parameters defines, with their descriptions."""
    own = [name for name in getattr(obj, "model_fields", {}) if name in obj.__annotations__]
    for field in own:
        if description := obj.model_fields[field].description:
            lines += [f"- `{field}`: {description}"]


def fields_once(app, what, name, obj, skip, options):
    """Skip the attributes that a class only annotates, because `fields_in_full` lists them."""
    return True if obj in (INSTANCEATTR, UNINITIALIZED_ATTR) else None


def fields_without_numbers(app, what, name, obj, options, lines):
    """Remove Python's text on the fields of a named tuple, which only states their positions."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def defining_module(app, module, attribute):
    """Return the module of a type alias such as `dict[str, int]`, which itself names `builtins`."""
    alias = vars(import_module(module)).get(attribute)
    return module if getattr(alias, "__module__", None) == "builtins" else None


def setup(app):
    app.add_directive("api", Api)
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.viewcode")
    app.connect("autodoc-process-signature", signature_in_short)
    app.connect("autodoc-process-docstring", sections_as_lists)
    app.connect("autodoc-process-docstring", fields_in_full)
    app.connect("autodoc-skip-member", fields_once)
    app.connect("autodoc-process-docstring", fields_without_numbers)
    app.connect("viewcode-follow-imported", defining_module)
    return {"parallel_read_safe": True}
