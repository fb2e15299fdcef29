"""Tests of the record of what validators from outside said."""

import datetime
import json
import sys

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import validators

STORED = json.loads(validators.RECORD.read_text())


def test_the_record_is_whole():
    assert STORED.keys() == validators.VALIDATORS.keys()
    for name, entry in STORED.items():
        assert entry["version"] == validators.VALIDATORS[name].version, name
        assert entry["reads"] == validators.VALIDATORS[name].reads, name
        assert datetime.date.fromisoformat(entry["date"])
        assert entry["count"] == sum(entry["complaints"].values())


def test_the_page_answers_each_complaint_that_was_not_mended():
    page = (ROOT / "book" / "checklists.md").read_text()
    for name, entry in STORED.items():
        assert not entry["count"] or f"**{name}**" in page, name


@pytest.mark.parametrize(
    ("name", "line", "complaint"),
    [
        ("zizmor", "error[unpinned-uses]: unpinned action reference", "unpinned-uses"),
        ("cffconvert", "ValidationError: no title", "ValidationError: no title"),
        ("twine", "WARNING  `long_description` missing.", "`long_description` missing."),
        ("check-wheel-contents", "a.whl: W009: Wheel contains two", "W009: Wheel contains two"),
        ("nbformat", "nbformat.ValidationError: no id", "nbformat.ValidationError: no id"),
        ("vnu-jar", '"file:/a.html":1.2-1.3: error: Duplicate ID “a”.', "Duplicate ID …."),
    ],
)
def test_complaints_are_found_in_what_a_validator_prints(name, line, complaint):
    assert validators.complaints(name, f"first\n{line}\n{line}\n") == {complaint: 2}
    assert validators.complaints(name, "All is well.\n") == {}


def test_each_command_names_the_pinned_version():
    for name, validator in validators.VALIDATORS.items():
        command = validators.command_of(name, "folder")
        assert validator.version in command and "{" not in command
