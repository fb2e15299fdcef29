"""All of the book's claims by name, their recorded verdicts, and the command that checks them.

`python -m attnconv check` lists the claims, `check NAME` judges one again and `check --all` judges
all of them. A claim stands if its verdicts match those recorded in data/claims.json.
"""

import json
import pkgutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from .. import studies
from ..display import Table
from ..runs.select import Records
from ..store import REPOSITORY, DamagedFile, write_file
from .claim import Claim, Verdict, by_where
from .paper import CLAIMS
from .statements import THEORY

CLAIMS_FILE = REPOSITORY / "data" / "claims.json"
WRITE = "python -m attnconv check --write"


def claims_of_studies() -> Iterator[Claim]:
    """Yield the claims of the studies, which are ordered by name.

    They are in the list `CLAIMS` of a study's file, or of the file `claims.py` in its folder.
    """
    for study in pkgutil.iter_modules(studies.__path__, f"{studies.__name__}."):
        name = f"{study.name}.claims" if study.ispkg else study.name
        if find_spec(name):
            yield from getattr(import_module(name), "CLAIMS", ())


def all_claims() -> list[Claim]:
    """Return all claims: those of the theory, of the paper's experiments and of the book itself."""
    return [*THEORY, *CLAIMS, *claims_of_studies()]


def select(names: Sequence[str]) -> list[Claim]:
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


# --- the recorded verdicts ------------------------------------------------------------------------


def read_recorded(path: Path = CLAIMS_FILE) -> dict[str, dict[str, str]]:
    """Return the recorded verdicts by claim and tier; raise DamagedFile if `path` is unusable."""
    try:
        return {each["name"]: each["verdicts"] for each in json.loads(path.read_text("utf-8"))}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} cannot be used: {error}; restore it from git") from None


def write_recorded(records: Records, path: Path = CLAIMS_FILE) -> None:
    """Judge all claims again and write them, with their verdicts, to a file."""
    claims = [claim.entry(records, by_where(claim.judge(records))) for claim in all_claims()]
    text = json.dumps(claims, indent=1, ensure_ascii=False) + "\n"
    write_file(path, text.encode())


# --- judging claims again -------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A claim judged again: its new and recorded verdicts, and the time that this took."""

    claim: Claim
    verdicts: list[Verdict]
    recorded: dict[str, str]
    seconds: float

    @property
    def stands(self) -> bool:
        """Return whether the verdicts equal the recorded ones and none of them is "fails"."""
        found = by_where(self.verdicts)
        return found == self.recorded and "fails" not in found.values()

    def line(self) -> str:
        """Return the new verdicts and whether they stand, as a single line of text."""
        words = _listed(by_where(self.verdicts))
        state = "stands " if self.stands else "CHANGED"
        changed = "" if self.stands else f" (recorded: {_listed(self.recorded)})"
        return f"{state}  {self.claim.name:34}  {words}{changed}  {self.seconds:.1f} s"

    def text(self, records: Records) -> str:
        """Return everything in full: rule, measurements, samples, verdicts and commands."""
        claim = self.claim
        lines = [f"{claim.name}: {claim.text} ({claim.place})", f"  rule      {claim.rule}"]
        if claim.fixed:
            lines.append(f"  fixed in  commit {claim.fixed}")
        for each in self.verdicts:
            lines.append(f"  measured  {each.where}: {each.measured}")
            if each.sample:
                lines.append(f"  sample    {each.sample}")
            was = self.recorded.get(each.where, "nothing")
            lines.append(f"  verdict   {each.where}: {each.verdict}, recorded: {was}")
        lines += [f"  repeat    {command}" for command in claim.commands(records)]
        state = "the recorded verdict stands" if self.stands else "THE VERDICT CHANGED"
        return "\n".join([*lines, f"  {state} ({self.seconds:.1f} s)"])


def _listed(verdicts: dict[str, str]) -> str:
    return ", ".join(f"{where}: {verdict}" for where, verdict in verdicts.items()) or "none"


def judge_again(claim: Claim, records: Records, recorded: dict[str, dict[str, str]]) -> Check:
    """Judge a claim again and compare the verdicts with the recorded ones."""
    start = time.perf_counter()
    verdicts = claim.judge(records)
    seconds = time.perf_counter() - start
    return Check(claim, verdicts, recorded.get(claim.name, {}), seconds)


def judge_and_print(names: Sequence[str], records: Records) -> bool:
    """Judge the named claims and print them in full or, if `names` is empty, all claims in brief.

    Returns whether all the judged claims stand. Raises ValueError for an unknown name before any
    claim is judged.
    """
    claims = select(names) if names else all_claims()
    recorded = read_recorded()
    changed = []
    for claim in claims:
        check = judge_again(claim, records, recorded)
        print(check.text(records) if names else check.line(), flush=True)
        if not check.stands:
            changed.append(claim.name)
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
