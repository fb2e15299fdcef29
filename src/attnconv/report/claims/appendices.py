"""Appendices E and F: the generalised encoding, pruning, sixteen heads."""

from statistics import mean

import torch

from ..tables import cost_in_table
from .claim import (
    SIZE,
    TOLERANCE,
    Answer,
    Claims,
    Runs,
    accuracy,
    gained,
    grade,
    listed,
    minus,
    on_one_pixel,
    over_runs,
    verdict,
)

CLAIMS = Claims()


@CLAIMS.claim(
    "Appendix E, Figure 12",
    "heads of the generalised encoding become non-isotropic, especially in high layers",
    "a layer's median ratio of axes reaches {ratio}, and layers 4 to 6 exceed layers 1 to 3"
    " (partly: the first alone)",
    "sa-generalized",
    ratio=2,
)
def _non_isotropic(runs: Runs, ratio: float) -> Answer:
    by_run = []
    for record in runs["sa-generalized"]:
        values = [
            torch.linalg.svdvals(encoding.root.double()) for encoding in record.history.encodings()
        ]
        by_run.append([(value[:, 0] / value[:, 1]).median().item() for value in values])
    ratios = over_runs(by_run)
    there, above = max(ratios) >= ratio, mean(ratios[3:]) > mean(ratios[:3])
    return f"median ratio of a head's axes, by layer: {listed(ratios)}", grade(
        there * (1 + above), 2, 1
    )


@CLAIMS.claim(
    "Appendix E",
    "non-isotropic heads bring no improvement",
    "not more than {tolerance} above the quadratic model",
    "sa-quadratic",
    "sa-generalized",
    tolerance=TOLERANCE,
)
def _no_gain(runs: Runs, tolerance: float) -> Answer:
    difference = gained(runs, "sa-generalized", "sa-quadratic")
    return f"generalised minus quadratic: {difference:+.4f}", verdict(difference <= tolerance)


@CLAIMS.claim(
    "Appendix E",
    "pruning initially hurts",
    "the accuracy just after it is lower than before",
    "sa-generalized-pruned",
)
def _pruning_hurts(runs: Runs) -> Answer:
    parents = [record.parent for record in runs["sa-generalized-pruned"]]
    before, after = (
        mean([parent[name] for parent in parents])
        for name in ("test_accuracy", "test_accuracy_after_pruning")
    )
    return f"before {before:.4f}, just after pruning {after:.4f}", verdict(after < before)


@CLAIMS.claim(
    "Appendix E, Figure 13",
    "the pruned model recovers the accuracy of the unpruned one",
    "not more than {tolerance} below its parent",
    "sa-generalized-pruned",
    tolerance=TOLERANCE,
)
def _pruning_recovers(runs: Runs, tolerance: float) -> Answer:
    parents = [record.parent["test_accuracy"] for record in runs["sa-generalized-pruned"]]
    change = minus(accuracy(runs["sa-generalized-pruned"]), mean(parents))
    return f"at the end {change:+.4f} from before pruning", verdict(change >= -tolerance)


@CLAIMS.claim(
    "Appendix E",
    "pruning reduces size and cost by a fourth",
    "by {percent} % or more",
    not_small=SIZE,
    percent=22.5,
)
def _by_a_fourth(runs: Runs, percent: float) -> Answer:
    before, after = cost_in_table("sa-generalized"), cost_in_table("sa-generalized-pruned")
    saved = [1 - after.parameters / before.parameters, 1 - after.flops_paper / before.flops_paper]
    found = (
        f"{saved[0]:.1%} of the parameters, {saved[1]:.1%} of the FLOPs as published, for the"
        " paper's own heads"
    )
    return found, verdict(min(saved) >= percent / 100)


@CLAIMS.claim(
    "Appendix F, Figure 14",
    "with 16 heads, local ones are more frequent in the first layers",
    "more heads with half of their mass on one shift in layers 1 to 3 than in 4 to 6",
    "sa-quadratic-16",
)
def _local_heads_first(runs: Runs) -> Answer:
    counts, found = on_one_pixel(runs, "sa-quadratic-16")
    return found, verdict(sum(counts[:3]) > sum(counts[3:]))
