"""The trained networks in JavaScript, against the package's: logits and attention maps."""

import numpy as np
import pytest
import torch
from helpers.javascript import run_node
from helpers.models import maps_of

from attnconv import convert_network, load_model
from attnconv.networks import build_model
from companion.data import PHOTOGRAPHS, PICTURES, load_dataset, load_photograph
from companion.data.cifar10 import CIFAR10_CLASSES
from companion.explorer.networks import add_networks, architecture
from companion.explorer.payload import Payload
from companion.studies.freed.network import as_free_attention

NETWORKS = ("sa-quadratic", "sa-learned", "sa-generalized", "sa-learned-content", "cnn")
LOADS = """
const [{ build }, { bytesOf, readTensors }, { HARD_ALPHA }] =
  await Promise.all(["network/build", "numerics/files", "numerics/numbers"].map(from));
const network = ({ file, architecture }) => build(readTensors(bytesOf(file.base64)), architecture);
"""
ALL_LOGITS = """
const images = given.images.map((image) => Float32Array.from(image));
return given.networks.map((entry) => {
  const { forward } = network(entry);
  const alphas = entry.architecture.steps ? [undefined, HARD_ALPHA, 4, 1] : [undefined];
  return alphas.map((alpha) => images.map((image) => forward(image, alpha).logits));
});
"""


@pytest.fixture(scope="module")
def models():
    return {name: load_model(name) for name in NETWORKS}


@pytest.fixture(scope="module")
def payload(models):
    return add_networks(Payload(), (model.record for model in models.values())).data


@pytest.fixture(scope="module")
def images(models):
    """Ten pictures as inputs: photographs, digits and noise; none is of CIFAR-10."""
    pictures = [(255 * load_photograph(name)).byte() for name in (*PICTURES, *PHOTOGRAPHS)]
    pictures += list(load_dataset("digits").test_images[:3].repeat(1, 1, 1, 3))
    generator = np.random.default_rng(0)
    noise = [
        generator.integers(0, 256, (*size, 3), np.uint8) for size in ((32, 32), (50, 40), (9, 21))
    ]
    return torch.stack([models["cnn"].transform(picture) for picture in [*pictures, *noise]])


def as_given(images):
    """Images `(B, 3, H, W)` as lists, one number after the other of `(H, W, 3)`."""
    return images.movedim(1, -1).flatten(1).tolist()


@pytest.fixture(scope="module")
def logits(models, payload, images):
    """The logits `(10, 10)` of each network, and of the CNN as attention at three alphas."""
    given = {"networks": payload["networks"], "images": as_given(images)}
    *others, (cnn, hard, four, one) = run_node(LOADS + ALL_LOGITS, given)
    by_name = dict(zip(NETWORKS, [found for (found,) in others], strict=False))
    by_name |= {"cnn": cnn, "hard": hard, 4.0: four, 1.0: one}
    return {name: torch.tensor(found) for name, found in by_name.items()}


@torch.no_grad()
def logits_of(model, images):
    return model.eval()(images)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_logits_are_torchs(name, models, images, logits):
    gap = (logits[name] - logits_of(models[name], images)).abs().max()
    assert gap < 1e-5, f"{name}: {gap:.1e}"


@pytest.mark.slow
def test_hard_heads_are_the_cnn(models, images, logits):
    assert (logits["hard"] - logits["cnn"]).abs().max() < 1e-5
    assert not torch.equal(logits["hard"], logits["cnn"]), "the sums are done in another order"
    assert (logits["hard"] - logits_of(convert_network(models["cnn"]), images)).abs().max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [4.0, 1.0])
def test_soft_heads_are_the_packages(alpha, models, images, logits):
    soft = as_free_attention(models["cnn"], alpha).eval()
    # While alpha is trained, the package averages for each head apart, not once for all.
    gap = (logits[alpha] - soft(images).detach()).abs().max()
    assert gap < 1e-5 < (logits[alpha] - logits["cnn"]).abs().max()


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_what_the_networks_say_of_the_pictures(name, models, images, logits):
    """Every network names both pictures rightly; soft heads are less sure, or wrong."""
    number = PICTURES.index(name)
    said = {key: values[number].softmax(dim=0) for key, values in logits.items()}
    right = CIFAR10_CLASSES.index({"chelsea": "cat"}.get(name, name))
    for key in (*NETWORKS, "hard", 4.0):
        assert said[key].argmax() == right and said[key][right] > 0.5, key
    assert said[1.0][right] < 0.5
    for key in NETWORKS:
        expected = logits_of(models[key], images[number : number + 1])[0].softmax(dim=0)
        assert abs(said[key][right] - expected[right]) < 1e-5, key


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS[:-1])
def test_the_maps_are_the_packages(name, models, payload, images):
    entry = payload["networks"][NETWORKS.index(name)]
    given = {"network": entry, "images": as_given(images[[0, 7]])}
    program = (
        LOADS
        + """
    const { forward } = network(given.network);
    return given.images.map((image) => forward(Float32Array.from(image)).maps);
    """
    )
    ours = torch.tensor(run_node(program, given))  # (image, layer, map)
    for layer, expected in enumerate(maps_of(models[name], images[[0, 7]])):
        assert (ours[:, layer].view(expected.shape) - expected).abs().max() < 1e-5, layer


def test_what_a_page_cannot_run_is_refused():
    with pytest.raises(ValueError, match="got ResNet, expected a network of self-attention"):
        architecture(build_model("resnet18", width=8))


def test_a_payload_names_what_numbers_mean(payload):
    assert payload["classes"][3] == "cat" and len(payload["classes"]) == 10
    assert payload["input"]["size"] == 32 and len(payload["input"]["std"]) == 3
    for entry in payload["networks"]:
        assert 0.7 < entry["accuracy"] < 1 and entry["source"] and entry["label"]
