"""The rules behind the verdicts, on records that were made to meet them or to fail, and the
tables of verdicts."""

import re
import subprocess

import pytest
import torch
from helpers import ROOT
from helpers.synthetic import content_attention, write_record, write_records

from companion.claims import results
from companion.claims.paper import CLAIMS
from companion.display import commands_of
from companion.heads import heads_of, lemma_3_residual
from companion.runs.record import load_run
from companion.runs.select import Records
from companion.specs import MODELS, VITS
from companion.studies.freed import claims as moving_heads
from companion.studies.starts.claims import START_CLAIMS
from companion.studies.starts.measures import VIT_TIERS


def judged(folder, tier="paper"):
    records = Records.read(folder, tier)
    found = {(claim.place, claim.text): claim.judge_in(tier, records).verdict for claim in CLAIMS}
    column = {"small": 1, "paper": 2}[tier]
    rows = [row for table in results.claims_tables(records) for row in table.rows]
    printed = {(row[-1], row[0]): row[column].partition(":")[0] for row in rows}
    assert printed == found and len(rows) == len(CLAIMS)
    return found


def verdict(folder, part, tier="paper"):
    (claim,) = (claim for claim in CLAIMS if part in claim.text)
    return claim.judge_in(tier, Records.read(folder)).verdict


def test_nothing_is_claimed_without_a_run(tmp_path):
    known = {claim: value for (_, claim), value in judged(tmp_path).items() if value != "not run"}
    assert known == {
        "parameters and FLOPs of the six models": "reproduced",
        "pruning reduces size and cost by a fourth": "differs",
    }
    assert len(judged(tmp_path)) == len(CLAIMS) >= 20


def test_what_trained_heads_became(paper_records):
    text = repr(results.trained_heads(Records.read(paper_records)))
    assert "the quadratic model of the paper tier (1 seed" in text
    number = r"([\d.]+)"
    pattern = (
        rf"cover ([\d., ]+) of the nine .* (None|\d) of the (\d) .* from {number} to {number}\. "
    )
    covered, close, layers, *ends = re.search(pattern, text).groups()
    record = load_run(paper_records / "sa-quadratic--cifar10--seed0")
    by_hand = [heads.offsets_with_mass(3) for heads in heads_of(record)]
    assert [float(number) for number in covered.split(", ")] == by_hand
    assert results.kernel_positions([record]) == by_hand and int(layers) == len(by_hand)
    residuals = [
        lemma_3_residual(encoding, *record.grid).max().item()
        for encoding in record.history.encodings()
    ]
    assert [float(end) for end in ends] == [round(min(residuals), 2), round(max(residuals), 2)]
    assert (close == "None") == (min(residuals) >= 0.1)


def test_the_tally_counts_each_claim_once():
    records = Records.read()
    counted = results.tally(records)
    assert sum(counted.values()) == len(CLAIMS)
    rows = [row for table in results.claims_tables(records) for row in table.rows]
    assert counted["differs"] == sum(row[1] == "differs" for row in rows)


def test_a_claim_links_its_figure_and_the_command_of_each_run():
    records = Records.read()
    table = results.claims_tables(records)[0]
    html = table._repr_html_()
    runs = [run for model in ("resnet18", "sa-quadratic") for run in records.at("small").of(model)]
    assert runs and all(f'href="../book/records.html#run-{run.name}"' in html for run in runs)
    assert '<a href="../notebooks/09-quadratic-encoding.html#fig-3">Figure 3</a>' in html
    assert 'id="run-resnet18--cifar10-small--seed0"' in commands_of(runs)._repr_html_()
    assert "Figure 3, sa-quadratic 0, sa-quadratic 1" in table.markdown()


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("claims", "tier"), [(CLAIMS, "small"), (moving_heads.CLAIMS, "small-free")]
)
def test_the_commit_that_a_rule_names_precedes_its_first_run(claims, tier):
    records = Records.read().at(tier)
    later = moving_heads.FIXED_LATER  # when the runs of the other arms were in
    used = [(c.fixed, ("places-100",) if c.fixed == later else c.models) for c in claims]
    used = {(fixed, run.name) for fixed, models in used for run in records.of(*models)}
    assert len(used) > 10
    if git("cat-file", "-e", "9e4217c").returncode:
        pytest.skip("needs the history of the repository")
    for fixed, run in used:  # a run names the commit from which it was started
        started = load_run(ROOT / "data" / "runs" / run).info.git_commit.removesuffix("+")
        assert git("merge-base", "--is-ancestor", fixed, started).returncode == 0, (fixed, run)


def test_the_rules_for_starts_precede_the_first_run_of_chapter_18():
    records = Records.read()
    runs = [run for tier in VIT_TIERS for model in VITS for run in records.at(tier).of(model)]
    assert len(runs) > 10
    (fixed,) = {claim.fixed for claim in START_CLAIMS}
    if git("cat-file", "-e", fixed).returncode:
        pytest.skip("needs the history of the repository")
    for run in runs:
        started = run.info.git_commit.removesuffix("+")
        assert git("merge-base", "--is-ancestor", fixed, started).returncode == 0, run.name


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        (0.938, "reproduced"),
        (0.933, "reproduced"),
        (0.943, "reproduced"),
        (0.93, "differs"),
        (0.9465, "exceeded"),
    ],
)
def test_accuracy(accuracy, expected, tmp_path):
    write_record(tmp_path, "sa-quadratic", accuracy)
    assert verdict(tmp_path, "SA quadratic: accuracy 0.938") == expected
    assert verdict(tmp_path, "as accurate as ResNet18") == "not run", "it needs both"


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.02])
def test_comparisons_of_accuracy(gap, tmp_path):
    for model, accuracy in (
        ("resnet18", 0.93 + gap),
        ("sa-quadratic", 0.93),
        ("sa-generalized", 0.93 + gap),
    ):
        write_record(tmp_path, model, accuracy)
    write_record(tmp_path, "sa-learned", 0.9)
    write_record(tmp_path, "sa-learned-content", 0.9 - gap)
    pruned = write_record(tmp_path, "sa-generalized-pruned", 0.92)
    assert verdict(tmp_path, "as accurate as ResNet18") == ("differs" if gap else "reproduced")
    assert verdict(tmp_path, "bring no improvement") == ("differs" if gap else "reproduced")
    assert verdict(tmp_path, "harder to train") == ("reproduced" if gap else "differs")
    parent = pruned.info.parent | {"test_accuracy": 0.92 + gap}
    write_record(tmp_path, "sa-generalized-pruned", 0.92, parent=parent)
    assert verdict(tmp_path, "recovers") == ("differs" if gap else "reproduced")
    assert verdict(tmp_path, "initially hurts") == "reproduced"
    assert verdict(tmp_path, "similarly to the learned") == "reproduced"
    unhurt = parent | {"test_accuracy_after_pruning": parent["test_accuracy"]}
    write_record(tmp_path, "sa-generalized-pruned", 0.92, parent=unhurt)
    write_record(tmp_path, "sa-learned", 0.95)
    assert verdict(tmp_path, "initially hurts") == "differs"
    assert verdict(tmp_path, "similarly to the learned") == "differs"


def test_convergence(tmp_path):
    write_record(tmp_path, "resnet18", 0.95)
    write_record(tmp_path, "sa-quadratic", 0.85)
    assert verdict(tmp_path, "faster to converge") == "reproduced", "the other never gets there"
    write_record(tmp_path, "sa-quadratic", 0.95)
    assert verdict(tmp_path, "faster to converge") == "differs", "both in the same epoch"
    write_record(tmp_path, "sa-quadratic", 0.85)
    write_record(tmp_path, "resnet18", 0.85, seed=1)
    assert verdict(tmp_path, "faster to converge") == "undecided", (
        "one seed that never gets there is enough"
    )


def quadratic(places, alphas, heads=9):
    """Six layers whose heads stand at places[layer], with alphas[layer]."""
    attention = {"epochs": torch.tensor([0, 3])}
    for layer, (centers, alpha) in enumerate(zip(places, alphas, strict=True), start=1):
        # at the start all heads are sharp and on the query pixel
        attention[f"layer{layer}.centers"] = torch.stack(
            [torch.zeros(heads, 2), torch.as_tensor(centers).float()]
        )
        attention[f"layer{layer}.alpha"] = torch.stack(
            [torch.full((heads,), 5.0), torch.full((heads,), float(alpha))]
        )
    return attention


def grid(side, step=1):
    axis = step * (torch.arange(side) - side // 2)
    return torch.cartesian_prod(axis, axis)


def test_the_grid_of_layer_4_and_the_reach_of_deeper_layers(tmp_path):
    good = quadratic([grid(3)] * 2 + [grid(3, 2)] * 4, [5] * 6)
    write_record(tmp_path, "sa-quadratic", attention=good)
    assert verdict(tmp_path, "single pixels that form a grid") == "reproduced"
    assert verdict(tmp_path, "layers 1 and 2 are local") == "reproduced"
    bad = quadratic([grid(3, 2)] * 2 + [torch.zeros(9, 2)] * 4, [5] * 6)  # all on one pixel
    write_record(tmp_path, "sa-quadratic", attention=bad)
    assert verdict(tmp_path, "single pixels that form a grid") == "differs"
    assert verdict(tmp_path, "layers 1 and 2 are local") == "differs"
    soft = quadratic([grid(3)] * 6, [0.2] * 6)
    write_record(tmp_path, "sa-quadratic", attention=soft)
    assert verdict(tmp_path, "single pixels that form a grid") == "differs"


def test_sixteen_heads(tmp_path):
    write_record(
        tmp_path,
        "sa-quadratic-16",
        attention=quadratic([grid(4)] * 6, [5, 5, 5, 0.1, 0.1, 0.1], 16),
    )
    assert verdict(tmp_path, "16 heads do not overlap") == "reproduced"
    assert verdict(tmp_path, "with 16 heads, local ones") == "reproduced"
    write_record(
        tmp_path,
        "sa-quadratic-16",
        attention=quadratic([torch.zeros(16, 2)] * 6, [0.1, 0.1, 0.1, 5, 5, 5], 16),
    )
    assert verdict(tmp_path, "16 heads do not overlap") == "differs"
    assert verdict(tmp_path, "with 16 heads, local ones") == "differs"


@pytest.mark.parametrize("like_the_paper", [True, False])
def test_learned_encodings(like_the_paper, tmp_path):
    attention = {"epochs": torch.tensor([0, 3])}
    shifts = torch.arange(-15, 16.0)
    for layer in range(1, 7):
        if like_the_paper and layer <= 3:  # single pixels; rows that are symmetric and wide
            single = 4 if layer < 3 else 2
            rows = torch.stack(
                [-5 * (shifts - head) ** 2 for head in range(single)]
                + [-(shifts**2)] * (9 - single)
            )
            columns = torch.stack(
                [-5 * (shifts - 1) ** 2] * single + [-0.05 * shifts**2] * (9 - single)
            )
        else:
            rows = torch.zeros(9, 31)
            columns = 0.2 * shifts.expand(9, 31)
        # at the start all pixels are alike
        attention[f"layer{layer}.row_scores"] = torch.stack([torch.zeros(9, 31), rows])
        attention[f"layer{layer}.column_scores"] = torch.stack([torch.zeros(9, 31), columns])
    write_record(tmp_path, "sa-learned", attention=attention)
    expected = "reproduced" if like_the_paper else "differs"
    assert verdict(tmp_path, "fewer of layer 3") == expected
    assert verdict(tmp_path, "horizontally symmetric") == expected


def test_untrained_heads_reproduce_nothing_of_what_training_should_do(paper_records):
    """The rules ask for more than chance: the synthetic records hold heads as they are drawn at the
    start."""
    found = judged(paper_records)
    for part in (
        "single pixels that form a grid",
        "fewer of layer 3",
        "horizontally symmetric",
        "become non-isotropic",
    ):
        assert [value for (_, claim), value in found.items() if part in claim] == ["differs"], part


@pytest.mark.parametrize(
    ("layers", "expected"), [([1, 2], "reproduced"), ([2], "partly"), ([], "differs")]
)
def test_content_at_a_constant_shift(layers, expected, tmp_path):
    attention = content_attention()
    for layer in layers:
        attention["shift_probabilities"][layer, 0, 15, 16] = 0.9
    write_record(tmp_path, "sa-learned-content", attention=attention)
    assert verdict(tmp_path, "one shift for any image and query") == expected


@pytest.mark.parametrize("uses", [True, False])
def test_use_of_content(uses, tmp_path):
    attention = content_attention()
    for part in ("content", "row", "column"):
        attention[f"image_{part}_scores"][:] = attention[f"image_{part}_scores"][:1].clone()
    if uses:
        scores = torch.zeros(3, 6, 4, 9, 256)
        scores[0, ..., 0] = scores[1, ..., 1] = scores[2, ..., 2] = 30.0
        attention["image_content_scores"][:, :, :4] = scores.unflatten(-1, (16, 16)).half()
    write_record(tmp_path, "sa-learned-content", attention=attention)
    assert verdict(tmp_path, "other heads use the content") == ("reproduced" if uses else "differs")


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1, 1, 1, 4, 4, 4], "reproduced"),
        ([4, 4, 4, 1, 1, 1], "partly"),
        ([1, 1, 1, 1.5, 1.5, 1.5], "differs"),
        ([1] * 6, "differs"),
    ],
)
def test_non_isotropic_heads(ratios, expected, tmp_path):
    attention = {"epochs": torch.tensor([0, 3])}
    for layer, ratio in enumerate(ratios, start=1):
        attention[f"layer{layer}.centers"] = torch.zeros(2, 9, 2)
        attention[f"layer{layer}.precision"] = (
            torch.diag(torch.tensor([float(ratio) ** 2, 1.0])).expand(2, 9, 2, 2).clone()
        )
    write_record(tmp_path, "sa-generalized", attention=attention)
    assert verdict(tmp_path, "become non-isotropic") == expected


def test_heads_that_see_everything_alike_have_the_ratio_that_they_have(tmp_path):
    attention = {"epochs": torch.tensor([0, 3])}
    for layer in range(1, 7):
        attention[f"layer{layer}.centers"] = torch.zeros(2, 9, 2)
        precision = torch.diag(torch.tensor([1e-17, 1e-21])).expand(2, 9, 2, 2).clone()
        attention[f"layer{layer}.precision"] = precision
    write_record(tmp_path, "sa-generalized", attention=attention)
    (claim,) = [claim for claim in CLAIMS if "become non-isotropic" in claim.text]
    found = claim.judge_in("paper", Records.read(tmp_path)).measured
    assert found == "median axis ratio of the heads, by layer: " + ", ".join(["100.0"] * 6)


def test_every_claim_can_be_judged(paper_records):
    findings = [claim.judge_in("paper", Records.read(paper_records)) for claim in CLAIMS]
    assert {each.verdict for each in findings} <= {"reproduced", "partly", "differs", "exceeded"}
    assert all("1 seed, 3 epochs" in each.sample for each in findings if each.sample != "exact")


def test_several_seeds_of_one_model_are_judged_one_by_one_too(tmp_path):
    near, far = (quadratic([grid(3)] * 2 + [grid(3, 2) * scale] * 4, [5] * 6) for scale in (0, 1))
    write_record(tmp_path, "sa-quadratic", seed=0, attention=far)
    (claim,) = [claim for claim in CLAIMS if "form a grid" in claim.text]
    assert "by seed" not in claim.judge_in("paper", Records.read(tmp_path)).sample
    write_record(tmp_path, "sa-quadratic", seed=1, attention=near)
    sure = claim.judge_in("paper", Records.read(tmp_path)).sample
    assert sure.endswith("; by seed: reproduced, differs")


def test_the_small_tier_is_judged_by_the_same_rules_and_not_asked_for_absolute_accuracies(tmp_path):
    write_records(tmp_path, tier="small")
    small = judged(tmp_path, "small")
    paper = judged(tmp_path)
    assert set(paper.values()) == {"not run", "reproduced", "differs"}, "the rules that need no run"
    assert "not run" not in small.values()
    not_asked = {text for (_, text), value in small.items() if value == "not asked"}
    others = {
        "parameters and FLOPs of the six models",
        "pruning reduces size and cost by a fourth",
    }
    accuracies = {
        f"{spec.label}: accuracy {spec.published.accuracy:.3f}"
        for spec in MODELS.values()
        if spec.published.accuracy
    }
    assert not_asked == accuracies | others


def test_the_variants_of_the_small_tier_side_by_side(tmp_path):
    near, far = (quadratic([grid(3)] * 2 + [grid(3, 2) * scale] * 4, [5] * 6) for scale in (0, 1))
    write_record(tmp_path, "sa-quadratic", attention=near, tier="small")
    write_record(tmp_path, "sa-quadratic", attention=far, tier="small-long")
    table = results.variants_table(Records.read(tmp_path))
    assert table.header[1:4] == ["20 epochs", "60 epochs", "16 × 16 tokens"]
    assert {row[3] for row in table.rows} == {"not run"}
    [grid_row] = [row for row in table.rows if row[0].startswith("the heads of layer 4")]
    assert grid_row[1:3] == ["differs", "reproduced"]
    write_record(tmp_path, "sa-quadratic", attention=far, tier="small-tokens")
    rows = results.variants_table(Records.read(tmp_path)).rows
    assert all(row[2] == row[3] and row[5] == row[6] for row in rows), "judged by the same rules"
    records = Records.read(tmp_path)
    claim = "the heads of layer 4"
    assert results.answer(records, "small-long", claim).endswith(
        "of layer 4's heads meet the rule (reproduced)"
    )
    assert results.answer(records, "paper", claim) == "sa-quadratic: not run (not run)"


def test_computing_time(tmp_path):
    write_record(tmp_path, "resnet18")
    write_record(tmp_path, "sa-learned", hardware={"device": "an imagined GPU", "processes": 2})
    assert results.compute_table(Records.read(tmp_path).of(*MODELS)).rows == [
        ["an imagined GPU", "2", "6", "0.50"]
    ]
