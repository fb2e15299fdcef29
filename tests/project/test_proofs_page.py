"""The pages on the proofs follow the files: its notes, its symbols, and the recorded goals."""

import json
import re
import sys

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "book" / "ext"))
sys.path.insert(0, str(ROOT / "proofs"))
import goals
import machinechecked
import stepthrough

PAGE = "\n".join(page.read_text() for page in sorted(ROOT.glob("book/proofs*.md")))
SOURCES = {path.stem: path.read_text() for path in (ROOT / "proofs").glob("*.v")}
STATEMENTS = json.loads((ROOT / "proofs" / "statements.json").read_text())


def blocks(directive):
    """The argument and the lines of each use of a directive on the pages."""
    pattern = rf"^(:{{3,}})\{{{directive}\}} (.*)\n((?:.*\n)*?)\1$"
    return [(name, body.splitlines()) for _, name, body in re.findall(pattern, PAGE, re.M)]


def defined_on_the_page():
    return {name for names, _ in blocks("definition") for name in names.split()}


def shown():
    """All statements and definitions on the page, without their line breaks."""
    texts = [statement["statement"] for statement in STATEMENTS.values()]
    texts += [stepthrough.definition_of(name) for name in sorted(defined_on_the_page())]
    return " ".join(" ".join(texts).split())


def code(cell):
    return [text.strip().replace(r"\|", "|") for _, text in re.findall(r"(`+)(.+?)\1(?!`)", cell)]


def symbols():
    """Each row of the two tables: symbols, examples."""
    tables = re.findall(r"^\| (?:symbol|name) \| meaning \| example \|$.*?^:::$", PAGE, re.M | re.S)
    rows = [row for table in tables for row in re.findall(r"^\| (`.*) \|$", table, re.M)]
    cells = [re.split(r" (?<!\\)\| ", row) for row in rows]
    assert len(tables) == 2 and all(len(row) == 3 for row in cells)
    return [(code(row[0]), code(row[2])) for row in cells]


def occurs(symbol, text):
    word = re.escape(symbol)
    if symbol[0].isalnum():
        word = rf"(?<![\w'.]){word}"
    return re.search(word + (r"(?![\w'])" if symbol[-1].isalnum() else ""), text)


def test_what_is_annotated_is_the_files_text():
    lines = blocks("line-by-line")
    assert [name for name, _ in lines] == ["theorem_1"]
    for name, body in lines:
        statement = machinechecked.find_theorem(name)["statement"]
        assert len(stepthrough.parts_of(body, name, statement)) > 10
        assert statement in SOURCES["Theorem1"]


def test_each_recorded_proof_is_stepped_through_on_the_page_and_is_in_the_files():
    steps = blocks("step-through")
    recorded = {path.stem for path in (ROOT / "proofs" / "goals").iterdir()}
    assert {name for name, _ in steps} == recorded == set(goals.STEPPED)
    for name, body in steps:
        record = [step["sentence"] for step in stepthrough.steps_of(name)]
        text = next(
            t for t in SOURCES.values() if re.search(rf"^(Theorem|Lemma) {name}\b", t, re.M)
        )
        assert record == goals.sentences(text, name)
        assert stepthrough.parts_of(body, name, " ".join(record))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["a ->", ": One.", "c.", ": Two."], "the page has 'a -> c.', the file 'a -> b.'"),
        (["a ->", ": One."], "the page has 'a ->', the file 'a -> b.'"),
        (["a ->", ": One.", "b."], "the last lines have no note"),
    ],
)
def test_notes_that_do_not_follow_the_file_stop_the_build(content, message):
    assert len(stepthrough.parts_of(["a", "  ->", ": One.", "b.", ": Two."], "x", "a ->\n b.")) == 2
    with pytest.raises(ValueError, match=re.escape(message)):
        stepthrough.parts_of(content, "x", "a -> b.")


def test_a_name_that_no_file_has_stops_the_build():
    for find, message in (
        (stepthrough.steps_of, "steps through nothing"),
        (stepthrough.definition_of, "names the definition nothing"),
    ):
        with pytest.raises(ValueError, match=message):
            find("nothing")


def test_each_symbol_and_each_example_is_on_the_page():
    text = shown()
    rows = symbols()
    assert len(rows) > 50
    for names, examples in rows:
        assert names and examples, names
        missing = [name for name in names if not occurs(name, text)]
        assert not missing, f"in the tables, but in no statement: {missing}"
        wrong = [example for example in examples if example not in text]
        assert not wrong, f"an example that is in no statement: {wrong}"
        assert all(occurs(names[0], example) for example in examples) or len(names) > 1, names


def test_each_name_of_ours_in_a_statement_is_explained():
    ours = {
        name
        for text in SOURCES.values()
        for name in re.findall(r"^(?:Definition|Record|Notation) (\w+)", text, re.M)
    }
    ours |= set(re.findall(r"^  (\w+) :", stepthrough.definition_of("float_format"), re.M))
    stated = " ".join(statement["statement"] for statement in STATEMENTS.values())
    used = {name for name in ours if occurs(name, stated)}
    explained = {name for names, _ in symbols() for name in names} | defined_on_the_page()
    assert len(used) > 40 and not used - explained


def test_the_definitions_that_theorem_1_and_lemma_3_are_stated_with_are_on_the_page():
    """All that these statements use, directly or through other definitions."""
    made = {
        name
        for text in SOURCES.values()
        for name in re.findall(r"^(?:Definition|Record|Notation) (\w+)", text, re.M)
    }
    texts = {name: STATEMENTS[name]["statement"] for name in ("theorem_1", "lemma_3")}
    todo = list(texts)
    needed = set()
    while todo:
        name = todo.pop()
        text = texts.get(name) or stepthrough.definition_of(name)
        new = {word for word in re.findall(r"[A-Za-z_]\w*", text) if word in made} - needed
        needed |= new
        todo += new
    assert needed == defined_on_the_page()


def test_goals_belong_to_their_sentences():
    """Coq's answers are recorded with the sentences that they follow; this replay numbers them."""
    asked = {}

    def replay(name, text):
        asked[name] = text
        parts = text.split("\nCheck I.\nShow.")
        return "".join(f"{goals.MARK}\n{name} {n}\n" for n in range(len(parts) - 1))

    records = goals.record_goals(SOURCES, replay)
    assert set(records) == set(goals.STEPPED)
    for name, text in asked.items():
        before = [part.rstrip() for part in text.split("\nCheck I.\nShow.")]
        steps = [step for record in records.values() for step in record]
        for step in steps:
            file, number = step["goals"].split()
            if file == name:
                assert before[int(number)].endswith(step["sentence"])
        assert re.sub(r"\s", "", text.replace("Check I.\nShow.\n", "")).endswith(
            re.sub(r"\s", "", goals.without_comments(SOURCES[name]))
        )


def test_what_is_new_comes_first_and_is_bold():
    before = "1 goal\n  \n  a : A\n  b : forall x,\n      B x\n  =====\n  C -> D"
    after = "2 goals\n  \n  a : A\n  b : forall x,\n      B x\n  c : C < 1\n"
    after += "  ============================\n  D\n\ngoal 2 is:\n E\n"
    shown = stepthrough.goals_html(after, before)
    order = ["<pre>D</pre>", "<b>c : C &lt; 1</b>\na : A\nb : forall x,\n", "<pre>E</pre>"]
    assert sorted(order, key=shown.index) == order
    assert "Nothing is left" in stepthrough.goals_html("No more goals.", before)
