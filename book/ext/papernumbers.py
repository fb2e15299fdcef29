"""Equations with the paper's numbers: the label `eq-9` gives (9), and `eq-c1` gives (C1).

Sphinx would number the equations of each page from 1.
"""

import re

from sphinx.domains.math import MathDomain


class PaperMathDomain(MathDomain):
    """Sphinx's equations, numbered by their labels."""

    def note_equation(self, docname, labelid, location=None):
        super().note_equation(docname, labelid, location)
        match = re.fullmatch(r"eq-(c?\d+)", labelid)
        if match is None:
            raise ValueError(
                f"{docname}: the equation label {labelid!r} is not eq-N (the paper's) or eq-cN"
                " (ours)"
            )
        self.equations[labelid] = docname, match[1].upper()


def setup(app):
    app.add_domain(PaperMathDomain, override=True)
    return {"parallel_read_safe": True}
