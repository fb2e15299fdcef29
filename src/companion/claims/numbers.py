"""The numbers that chapters 8, 9 and 11 quote about the paper's claims."""

from collections.abc import Mapping

from attnconv.cost import Cost
from attnconv.heads import Heads

from ..display import Numbers
from ..heads import heads_of
from ..runs.record import RunRecord
from ..runs.select import Records
from ..specs import MODELS, TABLE_1
from ..studies.freed.measures import lemma_3_residual_by_layer
from ..tables import summary
from .paper import HALF
from .results import answer, judge_from, kernel_positions
from .rules import listed


def accuracies(records: Records) -> Numbers:
    """Return the numbers that chapter 8 quotes about published and measured accuracies."""
    main_claim = judge_from(records, "small", "self-attention with the quadratic encoding is as")
    numbers: Numbers = {
        "paper-runs": sum(bool(records.at("paper").of(model)) for model in MODELS),
        "paper-models": len(MODELS),
        "small-difference": main_claim.measured.rpartition(": ")[2],
        "small-verdict": main_claim.verdict,
    }
    table = summary(records)
    for cells in table.rows:
        row = dict(zip(table.header, map(str, cells), strict=True))
        if row["name"] in TABLE_1:
            numbers[f"published-{row['name']}"] = row["published"]
            numbers[f"small-{row['name']}"] = row["small tier"]
    return numbers


def uncounted_flops(costs: Mapping[str, Cost]) -> Numbers:
    """Return by how many percent counting every product increases the attention models' FLOPs."""
    more = [
        100 * (cost.flops / cost.flops_paper - 1)
        for model, cost in costs.items()
        if model != "resnet18"
    ]
    return {"flops-least": min(more), "flops-most": max(more)}


def quadratic_encoding(records: Records, shown: RunRecord) -> Numbers:
    """Return the numbers that chapter 9 quotes; `shown` is the run in its figures."""
    grid = "the heads of layer 4 attend to single pixels"
    residuals = lemma_3_residual_by_layer(shown)
    return {
        "covered": ", ".join(str(heads.offsets_with_mass(3)) for heads in heads_of(shown)),
        "residuals": f"{min(residuals):.2f} and {max(residuals):.2f}",
        "grid-short": answer(records, "small", grid),
        "grid-long": answer(records, "small-long", grid),
        "grid-tokens": answer(records, "small-tokens", grid),
        "long-seeds": len(records.at("small-long").of("sa-quadratic")),
        "fine-seeds": len(records.at("small-tokens").of("sa-quadratic")),
        "sharp-sixteen": sum(
            sum(local_heads(run)) for run in records.at("small").of("sa-quadratic-16")
        ),
        "no-overlap": answer(records, "small", "16 heads do not"),
        "local-first": answer(records, "small", "with 16 heads, local"),
        **_token_size(records),
    }


def _token_size(records: Records) -> Numbers:
    """Return the numbers about networks with tokens of two sizes, if both have been run."""
    coarse = records.at("small").of("sa-quadratic")
    fine = records.at("small-tokens").of("sa-quadratic")
    if not coarse or not fine:
        return {}
    return {
        "tokens-coarse": ", ".join(str(sum(local_heads(run))) for run in coarse),
        "tokens-fine": " and ".join(str(sum(local_heads(run))) for run in fine),
        "tokens-covered-small": listed(kernel_positions(coarse)),
        "tokens-covered-small-tokens": listed(kernel_positions(fine)),
    }


def learned_encoding(records: Records, learned: RunRecord, content: RunRecord) -> Numbers:
    """Return the numbers that chapter 11 quotes.

    `learned` and `content` are the runs in its figures, without and with content.
    """
    without_content = judge_from(records, "small", "with a learned encoding some heads")
    with_content = judge_from(records, "small", "with content, some heads")
    by_seed = [sum(local_heads(run)) for run in records.of("sa-learned")]
    return {
        "local-learned": ", ".join(map(str, local_heads(learned))),
        "local-content": ", ".join(map(str, local_heads(content))),
        "local-seeds": ", ".join(map(str, by_seed)),
        "claim-learned": without_content.verdict,
        "claim-content": with_content.verdict,
    }


def local_heads(record: RunRecord) -> list[int]:
    """Return, for each layer, how many heads put at least half of their mass on one offset."""
    return [int((heads.mass >= HALF).sum()) for heads in heads_of(record)]


def inside_kernel(heads: Heads) -> int:
    """Return how many heads put at least half of their mass on an offset of a 3 x 3 kernel."""
    near = heads.offsets.abs().amax(dim=1) <= 1
    return int(((heads.mass >= HALF) & near).sum())
