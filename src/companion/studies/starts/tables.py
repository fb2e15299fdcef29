"""Tables for the chapters on vision transformers that start as convolutions."""

from collections.abc import Sequence

from ...accuracy import with_seeds
from ...claims.claim import Claim
from ...display import Table
from ...runs.select import Records
from ...specs import SPECS, VITS
from ...tiers import TIERS
from .claims import START_CLAIMS
from .factorial import ROTARY, ROTARY_CLAIMS, TIER
from .measures import VIT_TIERS


def tier_label(tier: str) -> str:
    """Return a label that gives a tier's numbers of training images and epochs."""
    recipe = TIERS[tier].recipe
    return f"{recipe['train_images']:,} images, {recipe['epochs']} epochs"


def starts_table(records: Records) -> Table:
    """Return a table of the test accuracy of every initialisation in every tier."""
    return _accuracies("starts", records, list(VITS), VIT_TIERS)


def rotary_table(records: Records) -> Table:
    """Return a table of the test accuracy of every start of a network with rotary encodings."""
    return _accuracies("rotary-starts", records, ROTARY, [TIER])


def start_answers_table(records: Records) -> Table:
    """Return a table that answers each of the questions of chapter 17 by its rule."""
    return _answers("start-answers", records, START_CLAIMS, "or shares of heads")


def rotary_answers_table(records: Records) -> Table:
    """Return a table that answers the questions about rotary encodings by their rule."""
    return _answers("rotary-answers", records, ROTARY_CLAIMS)


def _accuracies(name: str, records: Records, models: Sequence[str], tiers: Sequence[str]) -> Table:
    rows = [
        {"start": SPECS[model].label}
        | {tier_label(tier): with_seeds(records.at(tier).of(model)) for tier in tiers}
        for model in models
    ]
    caption = (
        "Test accuracy after the last epoch (mean ± standard deviation over n seeds). Source: the"
        " run records in data/runs."
    )
    return Table.of(name, caption, rows)


def _answers(name: str, records: Records, claims: Sequence[Claim], measured: str = "") -> Table:
    rows = [
        {
            "question": claim.text + (f" ({tier_label(where)})" if len(claim.where) > 1 else ""),
            "answer": found.verdict,
            "measurement": found.measured,
        }
        for claim in claims
        for where, found in zip(claim.where, claim.judge(records), strict=True)
    ]
    caption = (
        "The answers given by the rules on this page, and the measurements that decide them:"
        " differences in mean test accuracy"
    )
    return Table.of(name, f"{caption}{measured and ', '}{measured}.", rows)
