"""All of the book's claims by name, their recorded verdicts, and the command that checks them.

`python -m attnconv check` lists the claims, `check NAME` judges one again and `check --all` judges
all of them. A claim stands if its verdicts match those recorded in data/claims.json.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from ..display import Table
from ..runs.select import Records
from ..store import REPOSITORY, DamagedFile, write_file
from ..studies.conversion import load_conversion
from ..studies.freed import claims as moving_heads
from ..studies.freed.figures import TIER
from ..studies.scaling.measures import AXES, Axis, Change
from ..studies.scaling.measures import RULE as SCALING_RULE
from ..studies.scaling.measures import answers as scaling_answers
from ..studies.starts.measures import PAIRS
from ..studies.starts.measures import RULES as START_RULES
from ..studies.starts.measures import TIERS as START_TIERS
from ..studies.starts.measures import judge as judge_starts
from .paper import CLAIMS
from .rules import Claim, finding
from .statements import THEORY, TheoryClaim

CLAIMS_FILE = REPOSITORY / "data" / "claims.json"
WRITE = "python -m attnconv check --write"
STARTS_FIXED, SCALING_FIXED = "ccdf95c", "ea75023"  # the commits that added these rules
# the models and tiers whose runs answer each question of chapter 18
START_RUNS = {
    "helps": (("vit-convolution", "vit-default"), START_TIERS),
    "grid": (("vit-convolution", "vit-random", "vit-center"), ("vit-10k",)),
    "data": (("vit-convolution", "vit-default"), PAIRS["data"]),
    "lasts": (("vit-convolution", "vit-default"), PAIRS["lasts"]),
    "stays": (("vit-convolution",), ("vit-10k",)),
}


@dataclass(frozen=True)
class Verdict:
    """A verdict with its measurement and sample; `where` is a tier, "computed" or "records"."""

    where: str
    verdict: str
    measured: str
    sample: str = ""


@dataclass(frozen=True)
class NamedClaim:
    """A claim about the theory or the experiments, with the rule that judges it.

    `place` says where the paper or the book makes the claim. `fixed` is the commit by which the
    rule was settled, or "" if none is given. `runs` lists the pairs of model and tier whose runs
    the rule needs. `sample` describes the cases in which a statement of the theory is checked.
    """

    name: str
    place: str
    text: str
    rule: str
    judge: Callable[[Records], list[Verdict]]
    fixed: str = ""
    runs: tuple[tuple[str, str], ...] = ()
    sample: str = ""

    def commands(self, records: Records) -> list[str]:
        """Return the commands that repeat the runs behind the claim."""
        return [records.at(tier).command(model) for model, tier in self.runs]

    def entry(self, records: Records, verdicts: dict[str, str]) -> dict[str, Any]:
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


def _theory(claim: TheoryClaim) -> NamedClaim:
    def judge(records: Records) -> list[Verdict]:
        found, verdict = claim.judge()
        return [Verdict("computed", verdict, found, claim.sample)]

    words = claim.name, claim.place, claim.text, claim.rule
    return NamedClaim(*words, judge, sample=claim.sample)


def _experiment(claim: Claim, tiers: tuple[str, ...]) -> NamedClaim:
    def judge(records: Records) -> list[Verdict]:
        found = {tier: finding(claim, records.at(tier)) for tier in tiers}
        return [Verdict(t, each.verdict, each.found, each.sure) for t, each in found.items()]

    runs = tuple((model, tier) for tier in tiers for model in claim.needs)
    words = claim.name, claim.place, claim.text, claim.rule
    return NamedClaim(*words, judge, claim.fixed, runs)


def _same_network(records: Records) -> list[Verdict]:
    for record in records.at("small").of("cnn"):
        if found := load_conversion(record):
            ways = {"as shifts": found.attention, "with a softmax at every query": found.softmax}
            same = all(each.same_class == found.test_images for each in ways.values())
            measured = f"test images put into the same class (of {found.test_images}): "
            measured += "; ".join(
                f"{each.same_class} {name} (gap between the logits: {each.largest_gap:.0e})"
                for name, each in ways.items()
            )
            verdict = "holds" if same and not found.convolutions_left else "fails"
            return [Verdict("small", verdict, measured, record.name)]
    return [Verdict("small", "not run", "no comparison is stored")]


SAME_NETWORK = NamedClaim(
    "same-network",
    "chapter 14",
    "a trained CNN, converted to attention, is the same classifier",
    "every test image is put into the same class, whether one-hot heads are executed as shifts or"
    " with a softmax at every query, and no convolution is left",
    _same_network,
    runs=(("cnn", "small"),),
)


def _scaling_verdicts(name: str, records: Records) -> list[Verdict]:
    answer = scaling_answers(records)[name]
    if not isinstance(answer, Change):
        return [Verdict("records", "not run", answer.removeprefix("not run: "))]
    change = f"gap from {answer.first:+.4f} to {answer.last:+.4f}"
    measured = f"{change}, standard error of the change {answer.standard_error:.4f}"
    return [Verdict("records", answer.verdict, measured)]


def _scaling(axis: Axis) -> NamedClaim:
    resnet = product(["resnet18"], dict.fromkeys(axis.resnet_tiers))
    return NamedClaim(
        f"scaling-{axis.name}",
        "chapter 17",
        axis.question,
        SCALING_RULE,
        partial(_scaling_verdicts, axis.name),
        SCALING_FIXED,
        (*product(["sa-quadratic"], axis.tiers), *resnet),
    )


def _start_verdicts(name: str, records: Records) -> list[Verdict]:
    found = ((*key.partition(", "), answer) for key, answer in judge_starts(records).items())
    return [
        Verdict(tier or "records", answer.verdict, answer.measured)
        for key, _, tier, answer in found
        if key == name
    ]


def _start(name: str) -> NamedClaim:
    question, _, rule = START_RULES[name].partition("? ")
    return NamedClaim(
        f"start-{name}",
        "chapter 18",
        f"{question}?",
        rule,
        partial(_start_verdicts, name),
        STARTS_FIXED,
        tuple(product(*START_RUNS[name])),
    )


def all_claims() -> list[NamedClaim]:
    """Return all claims: those of the theory, of the paper's experiments and of the book itself."""
    return [
        *map(_theory, THEORY),
        *(_experiment(claim, ("small", "paper")) for claim in CLAIMS),
        SAME_NETWORK,
        *(_experiment(claim, (TIER,)) for claim in moving_heads.CLAIMS),
        *map(_scaling, AXES),
        *map(_start, START_RULES),
    ]


def select(names: Sequence[str]) -> list[NamedClaim]:
    """Return the claims with the given names. Raises ValueError for an unknown name."""
    claims = {claim.name: claim for claim in all_claims()}
    if unknown := [name for name in names if name not in claims]:
        near = [match for name in unknown for match in get_close_matches(name, claims)]
        meant = f" (did you mean {', '.join(near)}?)" if near else ""
        raise ValueError(
            f"no claim is named {', '.join(unknown)}{meant}; expected names"
            " listed by `python -m attnconv check`"
        )
    return [claims[name] for name in names]


def read_recorded(path: Path = CLAIMS_FILE) -> dict[str, dict[str, str]]:
    """Return the recorded verdicts by claim and tier; raise DamagedFile if `path` is unusable."""
    try:
        return {each["name"]: each["verdicts"] for each in json.loads(path.read_text("utf-8"))}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} cannot be used: {error}; restore it from git") from None


def write_recorded(records: Records, path: Path = CLAIMS_FILE) -> None:
    """Judge all claims again and write them, with their verdicts, to a file."""
    claims = [claim.entry(records, _by_where(claim.judge(records))) for claim in all_claims()]
    text = json.dumps(claims, indent=1, ensure_ascii=False) + "\n"
    write_file(path, text.encode())


@dataclass(frozen=True)
class Outcome:
    """The outcome of judging a claim again: the new and recorded verdicts, and the time taken."""

    claim: NamedClaim
    verdicts: list[Verdict]
    recorded: dict[str, str]
    seconds: float

    @property
    def stands(self) -> bool:
        """Return whether the verdicts equal the recorded ones and none of them is "fails"."""
        found = _by_where(self.verdicts)
        return found == self.recorded and "fails" not in found.values()

    def line(self) -> str:
        """Return the outcome as a single line of text."""
        words = ", ".join(
            f"{v.where}: {v.verdict}" if v.where else v.verdict for v in self.verdicts
        )
        state = "stands " if self.stands else "CHANGED"
        changed = "" if self.stands else f" (recorded: {_listed(self.recorded)})"
        return f"{state}  {self.claim.name:34}  {words}{changed}  {self.seconds:.1f} s"

    def text(self, records: Records) -> str:
        """Return the outcome in full, with rule, measurements, samples, verdicts and commands."""
        claim = self.claim
        lines = [f"{claim.name}: {claim.text} ({claim.place})", f"  rule      {claim.rule}"]
        lines += [f"  fixed in  commit {claim.fixed}"] * bool(claim.fixed)
        for each in self.verdicts:
            was = self.recorded.get(each.where, "nothing")
            lines.append(f"  measured  {each.where}: {each.measured}")
            lines += [f"  sample    {each.sample}"] * (each.sample not in ("", "-"))
            lines.append(f"  verdict   {each.where}: {each.verdict}, recorded: {was}")
        lines += [f"  repeat    {command}" for command in claim.commands(records)]
        state = "the recorded verdict stands" if self.stands else "THE VERDICT CHANGED"
        return "\n".join([*lines, f"  {state} ({self.seconds:.1f} s)"])


def _by_where(verdicts: Sequence[Verdict]) -> dict[str, str]:
    return {each.where: each.verdict for each in verdicts}


def _listed(verdicts: dict[str, str]) -> str:
    return ", ".join(f"{where}: {verdict}" for where, verdict in verdicts.items()) or "none"


def judge(claim: NamedClaim, records: Records, recorded: dict[str, dict[str, str]]) -> Outcome:
    """Judge a claim again and compare the verdicts with the recorded ones."""
    start = time.perf_counter()
    verdicts = claim.judge(records)
    seconds = time.perf_counter() - start
    return Outcome(claim, verdicts, recorded.get(claim.name, {}), seconds)


def judge_and_print(names: Sequence[str], records: Records) -> bool:
    """Judge the named claims and print them in full or, if `names` is empty, all claims in brief.

    Returns whether all the judged claims stand. Raises ValueError for an unknown name before any
    claim is judged.
    """
    claims, recorded, changed = select(names) if names else all_claims(), read_recorded(), []
    for claim in claims:
        outcome = judge(claim, records, recorded)
        print(outcome.text(records) if names else outcome.line(), flush=True)
        changed += [] if outcome.stands else [claim.name]
    if not names:
        print(f"{len(claims) - len(changed)} of {len(claims)} claims stand")
    if changed:
        print(f"changed: {', '.join(changed)}")
    return not changed


def names_table(path: Path = CLAIMS_FILE) -> Table:
    """Return a collapsed table of all claims, with their names, rules and recorded verdicts."""
    recorded = read_recorded(path)
    rows = [
        {
            "name": claim.name,
            "claim": claim.text,
            "stated in": claim.place,
            "rule": f"{claim.rule} ({claim.sample})" if claim.sample else claim.rule,
            "rule committed in": claim.fixed or "-",
            "recorded verdict": _listed(recorded.get(claim.name, {})),
        }
        for claim in all_claims()
    ]
    caption = (
        "All claims by name, each with its rule and recorded verdicts. For a statement of the"
        " theory, the sample follows the rule in parentheses. If a commit is listed, it fixed the"
        " rule before the first run that the rule judges. Checking a single claim also prints the"
        " commands that repeat its runs. Source: data/claims.json."
    )
    folded = f"The names, rules and recorded verdicts of all {len(rows)} claims"
    return Table.of("claim-names", caption, rows, stacked=True, folded=folded)
