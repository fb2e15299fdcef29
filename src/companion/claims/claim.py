"""Claims, the verdicts on them, and lists of claims that are judged from the runs of a tier."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..accuracy import Accuracy
from ..runs.record import RunRecord
from ..runs.select import Records

#: The verdicts on an experimental claim of the paper that has been judged.
VERDICTS = ("reproduced", "exceeded", "partly", "differs", "undecided")
#: The states of a claim that has not been judged: runs are missing, or the rule does not apply.
NOT_RUN = "not run"
NOT_ASKED = "not asked"
#: Values of `Verdict.where` for a computation, and for the runs of several tiers together.
COMPUTED = "computed"
RECORDS = "records"


@dataclass(frozen=True)
class Verdict:
    """A verdict on a claim, with the measurement that decides it and the sample measured.

    If the claim has not been judged, `verdict` is `NOT_RUN` or `NOT_ASKED` and `measured` says why.
    `where` is the tier of the runs that were measured, or `COMPUTED`, or `RECORDS`; `Claim.judge`
    fills it in.
    """

    verdict: str
    measured: str
    sample: str = ""
    where: str = ""

    @property
    def is_judged(self) -> bool:
        """Return whether the claim has been judged."""
        return self.verdict not in (NOT_RUN, NOT_ASKED)


#: The verdict on a claim some of whose runs are missing.
NOT_YET = Verdict(NOT_RUN, NOT_RUN)


@dataclass(frozen=True)
class Claim:
    """A claim about the theory or the experiments, with the rule that judges it.

    `name` is a short identifier, unique among all claims, for `python -m attnconv check`. `place`
    is the section of the paper (or the chapter) that makes the claim, and `text` states the claim
    briefly. `rule` is the rule in words, and `decide` is the rule in code: it is given the records
    at each element of `where`, which is a tier, `COMPUTED` or `RECORDS`.

    `runs` lists the pairs of model and tier whose runs the rule needs. `fixed` is the commit by
    which the rule was settled, before the first run that it judges, or "" if none is given.
    `sample` describes the cases in which a statement of the theory is checked. `not_small` says
    why the rule applies only to networks of the paper's size, or is "" if it applies to others.
    `shown` is the chapter and anchor of the figure or table that shows the runs.
    """

    name: str
    place: str
    text: str
    rule: str
    where: tuple[str, ...]
    decide: Callable[[Records], Verdict]
    runs: tuple[tuple[str, str], ...] = ()
    fixed: str = ""
    sample: str = ""
    not_small: str = ""
    shown: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        """The models whose runs the rule needs."""
        return tuple(dict.fromkeys(model for model, _ in self.runs))

    def judge(self, records: Records) -> list[Verdict]:
        """Judge the claim everywhere that it is to be judged."""
        return [self.judge_in(where, records) for where in self.where]

    def judge_in(self, where: str, records: Records) -> Verdict:
        """Judge the claim in one tier, which need not be among those in `self.where`."""
        if self.not_small and where != "paper":
            return Verdict(NOT_ASKED, self.not_small, where=where)
        found = self.decide(records.at(where))
        return replace(found, sample=self.sample or found.sample, where=where)

    def commands(self, records: Records) -> list[str]:
        """Return the commands that repeat the runs behind the claim."""
        return [records.at(tier).command(model) for model, tier in self.runs]

    def entry(self, records: Records, verdicts: Mapping[str, str]) -> dict[str, Any]:
        """Return the claim, with the given verdicts, in the form stored in data/claims.json."""
        return {
            "name": self.name,
            "place": self.place,
            "text": self.text,
            "rule": self.rule,
            "fixed": self.fixed,
            "verdicts": verdicts,
            "command": f"python -m attnconv check {self.name}",
            "runs": self.commands(records),
        }


def by_where(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return the verdicts on a claim, as words, by `Verdict.where`."""
    return {each.where: each.verdict for each in verdicts}


#: The runs of models, by model.
Runs = Mapping[str, Sequence[RunRecord]]
#: A rule that judges a claim from the runs of one tier. Its thresholds are default arguments.
Rule = Callable[..., Verdict]


class Claims(list[Claim]):
    """A list of claims, each of which is judged from the runs of each of the same tiers.

    The rules were settled by commit `fixed`, unless a claim names another.
    """

    def __init__(self, fixed: str, *tiers: str):
        super().__init__()
        self.fixed = fixed
        self.tiers = tiers

    def add(
        self, rule: Rule, place: str, text: str, words: str, *models: str, **options: str
    ) -> None:
        """Append a claim that `rule` judges from the runs of the given models in a tier.

        The thresholds of the rule also fill the placeholders in its `words`, so that text and code
        cannot differ. By default, the claim's name is derived from the name of the function.
        """
        given = inspect.signature(rule).parameters.values()
        thresholds = {each.name: each.default for each in given if each.default is not each.empty}
        name = options.pop("name", "") or rule.__name__.strip("_").replace("_", "-")
        claim = Claim(
            name,
            place,
            text,
            words.format(**thresholds),
            where=self.tiers,
            decide=partial(judge_runs, rule, models),
            runs=tuple((model, tier) for tier in self.tiers for model in models),
            **{"fixed": self.fixed} | options,
        )
        self.append(claim)

    def claim(self, *words: str, **options: str) -> Callable[[Rule], Rule]:
        """Return a decorator that adds a claim judged by the decorated function; see `add`."""

        def register(rule: Rule) -> Rule:
            self.add(rule, *words, **options)
            return rule

        return register


def judge_runs(rule: Rule, models: Sequence[str], records: Records) -> Verdict:
    """Judge the runs of the given models in one tier, and describe the sample.

    If the rule is about a single model with several runs, the sample ends with the verdict on each
    run. If a model has no runs, the verdict is `NOT_RUN`.
    """
    runs = {model: records.of(model) for model in models}
    if missing := [model for model in models if not runs[model]]:
        return Verdict(NOT_RUN, "; ".join(f"{model}: {records.state(model)}" for model in missing))
    found = rule(runs)
    if found.sample or not found.is_judged:
        return found
    sample = "; ".join(f"{model}: {_sample(used)}" for model, used in runs.items()) or "exact"
    if len(runs) == 1 and len(used := runs[models[0]]) > 1:
        alone = [rule({models[0]: [record]}).verdict for record in used]
        sample += f"; by seed: {', '.join(alone)}"
    return replace(found, sample=sample)


def _sample(runs: Sequence[RunRecord]) -> str:
    accuracy = Accuracy.of(runs)
    return ", ".join(filter(None, (accuracy.conditions, accuracy.deviation)))
