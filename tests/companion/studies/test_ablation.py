"""Trained networks with replaced attention: measured, stored, judged; the committed results."""

import json

import pytest
import torch
from helpers import ROOT
from helpers.pages import states

from attnconv import ablate_attention, build_model
from companion.claims.registry import read_recorded
from companion.data import Dataset
from companion.data.cifar10 import CIFAR10_CLASSES
from companion.runs.record import RunInfo, RunRecord
from companion.runs.weights import write_weights
from companion.store import DamagedFile
from companion.studies import ablation
from companion.studies.ablation import ABLATION_FILE, CLAIMS, Ablation, load_ablation, measure

PAGE = "notebooks/11-learned-encodings.ipynb"
POSITION_ONLY = ablation.SMALL[:-1]


@pytest.fixture
def noise():
    images = torch.randint(256, (25, 8, 8, 3), dtype=torch.uint8)
    labels = torch.randint(10, (25,))
    normalisation = {"classes": CIFAR10_CLASSES, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return Dataset("cifar10", images[:5], labels[:5], images[5:], labels[5:], **normalisation)


@pytest.fixture
def network():
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "hidden": 12, "intermediate": 8, "image_size": 8, "num_heads": 2}
    return build_model("sa-quadratic", **sizes).eval()


def record_in(folder):
    parameters = {"model": "sa-quadratic", "dataset": "cifar10", "tier": "small", "seed": 0}
    return RunRecord(
        folder, RunInfo.model_construct(parameters=parameters, dataset={"name": "cifar10"}), []
    )


def test_a_result_is_stored_with_its_record(network, noise, tmp_path):
    write_weights(tmp_path, network, {})
    assert load_ablation(record_in(tmp_path)) is None
    command = ablation.command_of(record_in(tmp_path))
    assert command == "ablate --model sa-quadratic --tier small --seed 0"
    found = measure(network, tmp_path, noise, 15, command)
    assert found == load_ablation(record_in(tmp_path))
    images = noise.normalise(noise.test_images[:15])
    report = ablate_attention(network, images, noise.test_labels[:15])
    assert found.layers == list(report.layers) and found.test_images == 15
    assert found.of("3 x 3") == pytest.approx(report.of("3 x 3").tolist(), abs=1e-6)
    right = (network(images).argmax(dim=1) == noise.test_labels[:15]).sum().item()
    assert found.unchanged == pytest.approx(right / 15, abs=1e-6)

    path, content = tmp_path / ABLATION_FILE, (tmp_path / ABLATION_FILE).read_text()
    path.write_text(json.dumps(json.loads(content) | {"test_images": "many"}))
    with pytest.raises(
        DamagedFile, match=r"ablation.json is damaged: test_images .*ablate --model"
    ):
        load_ablation(record_in(tmp_path))
    path.write_text(content.replace(found.weights_sha256, "0" * 64))
    with pytest.raises(DamagedFile, match="belongs to other weights"):
        load_ablation(record_in(tmp_path))


@pytest.mark.parametrize(
    ("kept", "uniform", "verdict"),
    [
        (0.8, 0.3, "convolves"),
        (0.79, 0.3, "convolves"),
        (0.789, 0.3, "partly"),
        (0.75, 0.3, "partly"),
        (0.749, 0.3, "does not convolve"),
        (0.8, 0.75, "undecided"),
    ],
)
def test_the_rule(kept, uniform, verdict, network, noise, tmp_path):
    write_weights(tmp_path, network, {})
    found = measure(network, tmp_path, noise, 5, "")
    scores = [[kept if name == "3 x 3" else uniform for name in found.replacements]]
    changed = found.model_copy(update={"unchanged": 0.8, "scores": scores})
    (tmp_path / ABLATION_FILE).write_text(changed.model_dump_json())
    (claim,) = (each for each in CLAIMS if each.name == "convolves-sa-quadratic")
    rule = claim.decide.args[0]
    judged = rule({"sa-quadratic": [record_in(tmp_path)]})
    assert judged.verdict == verdict and f"{kept:.4f} with the 3 x 3" in judged.measured


def test_claims_without_a_result_are_not_run(tmp_path):
    rule = CLAIMS[0].decide.args[0]
    assert rule({"sa-quadratic": [record_in(tmp_path)]}).verdict == "not run"


# --- the committed results ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(committed):
    return ablation.ablations(committed)


def test_the_committed_results_belong_to_the_stored_weights(committed, found):
    stored = sorted(path.parent.name for path in (ROOT / "data/runs").glob(f"*/{ABLATION_FILE}"))
    assert len(stored) == len(found) >= 4
    for each in found.values():
        assert isinstance(each, Ablation) and "--images" in each.command
        assert len(each.scores) == len(each.layers) + 1 == 7


@states(PAGE, "The mean maps change nothing in networks whose attention depends only on positions")
def test_position_only_networks_lose_nothing_with_their_mean_maps(found):
    """Their maps are the same for all images, so the mean map is the map itself."""
    for model in set(POSITION_ONLY) & set(found):
        each = found[model]
        assert each.of("mean map") == pytest.approx(
            [each.unchanged] * 7, abs=1.5 / each.test_images
        )


@states(
    PAGE,
    "keeps its accuracy if the attention of all its layers is replaced by 3 × 3 convolutions",
    "every network loses accuracy",
)
def test_no_network_convolves(found):
    assert all(each.lost("3 x 3") > 0.05 < each.lost("uniform") for each in found.values())


@states(PAGE, "With the quadratic encoding, wider convolutions lose less")
def test_wider_convolutions_lose_less(found):
    kept = [found["sa-quadratic"].of(f"{k} x {k}")[-1] for k in (1, 3, 5, 7)]
    assert kept == sorted(set(kept)) and kept[-1] < found["sa-quadratic"].unchanged


@states(PAGE, "The two networks that use content need it")
def test_networks_with_content_need_it(found):
    assert all(found[m].lost("mean map") > 0.05 for m in ("sa-learned-content", "vit-convolution"))


def test_the_recorded_verdicts_stand(committed):
    recorded = read_recorded()
    for claim in CLAIMS:
        judged = {each.where: each.verdict for each in claim.judge(committed)}
        assert recorded[claim.name] == judged
