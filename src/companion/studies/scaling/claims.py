"""The claims of chapter 13: how the gap between ResNet18 and attention changes along each axis."""

from functools import partial

from ...claims.claim import NOT_RUN, RECORDS, Claim, Verdict
from ...runs.select import Records
from .measures import AXES, GAP_RULE, Axis, changes, missing


def _decide(axis: Axis, records: Records) -> Verdict:
    if lacking := missing(axis, records):
        return Verdict(NOT_RUN, ", ".join(lacking))
    change = changes(records)[axis.name]
    measured = f"gap from {change.first:+.4f} to {change.last:+.4f}"
    measured += f", standard error of the change {change.fall.standard_error:.4f}"
    return Verdict(change.verdict, measured)


CLAIMS = [
    Claim(
        f"scaling-{axis.name}",
        "chapter 13",
        axis.question,
        GAP_RULE,
        (RECORDS,),
        partial(_decide, axis),
        axis.runs,
        fixed="ea75023",  # the commit that added the rule
    )
    for axis in AXES
]
