"""The paper's experimental claims, in its order, as rules over run records, written before the runs.

A claim is one object: its words, its rule in words, the thresholds that both the words and the judgement are made of, and the
judgement. That takes the runs of each model it needs, `{name: [RunRecord, ...]}`, and answers with what it found and a verdict:
`reproduced`, `partly`, `differs`, `exceeded` or `undecided`. Without those runs the verdict is `not run`, whatever else is known.
"""

from .claim import CLAIMS, Claim, Finding, finding

# isort: split
# The files in the paper's order: importing them fills CLAIMS.
from .accuracy import as_printed

# isort: split
from .heads import mirrored

# isort: split
from . import appendices
