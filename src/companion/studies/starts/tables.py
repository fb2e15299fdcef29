"""Tables for the chapter on vision transformers that start as convolutions."""

from ...accuracy import Accuracy
from ...claims.claim import NOT_RUN
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
    rows = []
    for model in VITS:
        row = {"start": SPECS[model].label}
        for tier in VIT_TIERS:
            runs = records.at(tier).of(model)
            accuracy = Accuracy.of(runs) if runs else None
            row[tier_label(tier)] = f"{accuracy} (n = {accuracy.seeds})" if accuracy else NOT_RUN
        rows.append(row)
    caption = (
        "Test accuracy after the last epoch (mean ± standard deviation over n seeds). Source: the"
        " run records in data/runs."
    )
    return Table.of("starts", caption, rows)


def start_answers_table(records: Records) -> Table:
    """Return a table that answers each of the chapter's questions by its rule."""
    rows = []
    for claim in START_CLAIMS:
        for verdict in claim.judge(records):
            where = f" ({tier_label(verdict.where)})" if verdict.where in TIERS else ""
            row = {
                "question": claim.text + where,
                "answer": verdict.verdict,
                "measurement": verdict.measured,
            }
            rows.append(row)
    caption = (
        "The answers given by the rules on this page, and the measurements that decide them:"
        " differences in mean test accuracy, or shares of heads."
    )
    return Table.of("start-answers", caption, rows)
