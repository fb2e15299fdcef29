"""The paper's experimental claims, in its order, as rules over run records, written before the
runs.

A claim is one object: its words, its rule in words, the thresholds that both the words and the
judgement are made of, and the judgement. That takes the runs of each model it needs,
`{name: [RunRecord, ...]}`, and answers with what it found and a verdict: `reproduced`, `partly`,
`differs`, `exceeded` or `undecided`. Without those runs the verdict is `not run`, whatever else is
known.
"""

from . import accuracy, appendices, heads
from .accuracy import as_printed
from .claim import Claim, Finding, finding
from .heads import mirrored

CLAIMS = (*accuracy.CLAIMS, *heads.CLAIMS, *appendices.CLAIMS)
