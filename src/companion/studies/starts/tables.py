"""Tables for the chapter on vision transformers that start as convolutions."""

from ...accuracy import with_seeds
from ...display import Table
from ...runs.select import Records
from ...specs import SPECS, VITS
from ...tiers import TIERS
from .claims import START_CLAIMS
from .measures import VIT_TIERS


def tier_label(tier: str) -> str:
    """Return a label that gives a tier's numbers of training images and epochs."""
    recipe = TIERS[tier].recipe
    return f"{recipe['train_images']:,} images, {recipe['epochs']} epochs"


def starts_table(records: Records) -> Table:
    """Return a table of the test accuracy of every initialisation in every tier."""
    rows = [
        {"start": SPECS[model].label}
        | {tier_label(tier): with_seeds(records.at(tier).of(model)) for tier in VIT_TIERS}
        for model in VITS
    ]
    caption = (
        "Test accuracy after the last epoch (mean ± standard deviation over n seeds). Source: the"
        " run records in data/runs."
    )
    return Table.of("starts", caption, rows)


def start_answers_table(records: Records) -> Table:
    """Return a table that answers each of the chapter's questions by its rule."""
    rows = [
        {
            "question": claim.text + (f" ({tier_label(where)})" if where in TIERS else ""),
            "answer": found.verdict,
            "measurement": found.measured,
        }
        for claim in START_CLAIMS
        for where, found in zip(claim.where, claim.judge(records), strict=True)
    ]
    caption = (
        "The answers given by the rules on this page, and the measurements that decide them:"
        " differences in mean test accuracy, or shares of heads."
    )
    return Table.of("start-answers", caption, rows)
