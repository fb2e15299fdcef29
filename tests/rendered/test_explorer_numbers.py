"""JavaScript against Python: the explorer's numbers are the package's, on random cases, in a
browser. Needs no built book."""

import base64
import zlib

import pytest
import torch
from helpers.ways import content_probabilities
from safetensors.torch import save
from torch import nn

from attnconv import attention_probabilities, conv_to_attention, hard_alpha
from attnconv.heads import mean_by_offset
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.networks import build_model
from attnconv.theory.grid import offset_set
from companion.explorer import script
from companion.explorer.payload import content_files_of_model, maps_payload
from companion.heads import TrainedHeads, score_parts
from companion.runs.history import from_snapshot

CLOSE = 1e-5
SIZES = [(5, 8), (8, 5), (7, 7)]
IMPORT = """async (source) => {
  window.explorer = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  window.bytes = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  window.plain = (value) => JSON.parse(JSON.stringify(value, (_, part) => (ArrayBuffer.isView(part) ? Array.from(part) : part)));
}"""


@pytest.fixture(scope="module")
def javascript(browser):
    """Evaluates JavaScript in which `explorer` is the module and `given` the argument; arrays come
    back as lists."""
    page = browser.new_page()
    page.evaluate(IMPORT, script("mount"))
    yield lambda expression, given=None: page.evaluate(
        f"async (given) => plain(await {expression})", given
    )
    page.close()


def random_snapshot(kind, heads, height, width):
    """Return random heads of one layer at two moments, of which the second is tested."""
    centers = 2 * torch.randn(2, heads, 2)
    # the farthest offset that can be the best
    centers[1, 0] = torch.tensor([height // 2, width // 2])
    root = torch.randn(2, heads, 2, 2)
    return {
        "quadratic": {"centers": centers, "alpha": torch.rand(2, heads) * 3 + 0.5},
        "generalized": {"centers": centers, "precision": root @ root.mT},
        "learned": {
            "row_scores": torch.randn(2, heads, 2 * height - 1),
            "column_scores": torch.randn(2, heads, 2 * width - 1),
        },
    }[kind]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["quadratic", "generalized", "learned"])
def test_position_only_maps(javascript, kind, size):
    height, width = size
    snapshot = random_snapshot(kind, 3, height, width)
    file = save(
        {"epochs": torch.tensor([0, 4])}
        | {f"layer1.{name}": values for name, values in snapshot.items()}
    )
    given = {"file": base64.b64encode(file).decode(), "size": [height, width]}
    ours = javascript(
        """(() => {
          const model = new explorer.PositionModel({ size: given.size }, explorer.readTensors(bytes(given.file)));
          const [height, width] = given.size, heads = [0, 1, 2];
          const queries = Array.from({ length: height * width }, (_, q) => [Math.floor(q / width), q % width]);
          const maps = heads.map((h) => queries.map((q) => explorer.softmax(model.scores(0, h, q))));
          const middle = (height >> 1) * width + (width >> 1), best = heads.map((h) => model.bestShift(0, h));
          return { maps, best, epochs: model.epochs, entropies: heads.map((h) => explorer.entropy(maps[h][middle])) };
        })()""",
        given,
    )
    encoding = from_snapshot({name: values[1].double() for name, values in snapshot.items()})
    maps = attention_probabilities(encoding, height, width)
    assert (
        torch.tensor(ours["maps"], dtype=torch.float64).reshape(maps.shape) - maps
    ).abs().max() < CLOSE
    heads = TrainedHeads(maps[:, height // 2, width // 2], mean_by_offset(maps))
    assert ours["epochs"] == [0, 4]
    assert torch.allclose(
        torch.tensor(ours["entropies"], dtype=torch.float64), heads.entropy, atol=CLOSE
    )
    assert torch.allclose(
        torch.tensor([best["mass"] for best in ours["best"]], dtype=torch.float64),
        heads.mass,
        atol=CLOSE,
    )
    assert [best["shift"] for best in ours["best"]] == heads.offsets.tolist()


def test_content_maps(javascript):
    small = {
        "image_size": 6,
        "pooling": 1,
        "in_channels": 1,
        "num_layers": 2,
        "hidden": 16,
        "intermediate": 16,
    }
    model = build_model("sa-learned-content", **small).eval()
    with torch.no_grad():
        for attention in model.attentions:  # scores far from zero
            attention.query.weight *= 6
    image = torch.randn(1, 1, 6, 6)
    files = [
        base64.b64encode(save(layer)).decode() for layer in content_files_of_model(model, image)
    ]
    ours = javascript(
        """(() => {
          const layers = given.map((file) => explorer.readTensors(bytes(file)));
          const model = new explorer.ContentModel({ size: [6, 6] }, layers);
          const heads = (l, part) => Array.from({ length: 9 }, (_, h) => model.queries.map((q) => model.scores(l, h, q, part)));
          const map = (part) => layers.map((_, l) => heads(l, part));
          return { score: map("score"), position: map("position"), content: map("content"), parts: model.parts };
        })()""",
        files,
    )
    for n, (parts, theirs) in enumerate(
        zip(score_parts(model, image), content_probabilities(model, image), strict=True)
    ):
        content, rows, columns = (part[0].double() for part in parts)
        position = rows.unsqueeze(-1) + columns.unsqueeze(-2)
        for name, expected in {
            "content": content,
            "position": position,
            "score": content + position,
        }.items():
            assert (
                torch.tensor(ours[name][n], dtype=torch.float64)
                - expected.flatten(1, 2).flatten(-2)
            ).abs().max() < CLOSE
        probabilities = torch.tensor(ours["score"][n]).softmax(dim=-1).reshape(9, 6, 6, 6, 6)
        assert (probabilities - theirs[0]).abs().max() < CLOSE and theirs[0].amax() > 0.2


def test_given_maps(javascript):
    maps = torch.rand(2, 3, 4, 5, 4, 5).flatten(-2).softmax(dim=-1).reshape(2, 3, 4, 5, 4, 5)
    entry = maps_payload(maps).data["models"][0]
    (files,) = entry["content"].values()
    ours = javascript(
        """(() => {
          const layers = given.files.map((file) => explorer.readTensors(bytes(file.base64)));
          const model = new explorer.ContentModel(given, layers);
          return [model.parts, explorer.softmax(model.scores(1, 2, [3, 1], "score")), model.bestShift(1, 2, "score")];
        })()""",
        entry | {"files": files},
    )
    assert ours[0] == ["score"], "maps alone have no parts"
    assert (torch.tensor(ours[1]) - maps[1, 2, 3, 1].flatten()).abs().max() < 1e-3
    heads = TrainedHeads(maps[1, :, 2, 2], mean_by_offset(maps[1]))
    assert ours[2] == {
        "mass": pytest.approx(heads.mass[2].item(), abs=CLOSE),
        "shift": heads.offsets[2].tolist(),
    }


@pytest.mark.parametrize("size", SIZES)
def test_convolution_and_its_attention(javascript, size):
    """Convolve each channel of a colour image with the same kernel."""
    image, alpha = torch.rand(3, 1, *size, dtype=torch.float64), 1.7
    conv = nn.Conv2d(1, 1, 3, padding=1, bias=False, dtype=torch.float64)
    centers = offset_set((3, 3)) + 0.4 * torch.randn(9, 2, dtype=torch.float64)
    layer = conv_to_attention(conv, alpha=alpha)
    layer.encoding.centers.data = centers
    given = {
        "image": image[:, 0].movedim(0, -1).flatten().tolist(),
        "red": image[0].flatten().tolist(),
        "size": list(size),
        "kernel": conv.weight.flatten().tolist(),
        "centers": centers.tolist(),
        "alpha": alpha,
    }
    ours = javascript(
        """(() => {
          const { image, red, size, kernel, centers, alpha } = given;
          const layer = new explorer.SeparableLayer(Float64Array.from(image), ...size);
          return { convolution: explorer.convolve(red, ...size, kernel), attention: layer.attend(centers, alpha, kernel) };
        })()""",
        given,
    )
    for name, expected in (
        ("convolution", conv(image)[0].flatten()),
        ("attention", layer(image)[:, 0].movedim(0, -1).flatten()),
    ):
        assert (torch.tensor(ours[name], dtype=torch.float64) - expected).abs().max() < CLOSE, name


def test_constants(javascript):
    assert javascript("explorer.HARD_ALPHA") == hard_alpha(torch.float64)
    assert javascript("explorer.SHIFTS") == offset_set((3, 3)).tolist()


def test_a_head_far_outside_a_small_image(javascript):
    """Its weights all but vanish in most windows: the mean by offset is still that of softmaxes."""
    encoding = QuadraticEncoding.from_alpha(torch.tensor([[-9.0, 30.0]], dtype=torch.float64), 46.0)
    layer = {"heads": 1, "centers": [-9, 30], "alpha": [46]}
    found = javascript(
        """(() => {
          const layer = { heads: 1, centers: Float64Array.from(given.centers), alpha: Float64Array.from(given.alpha) };
          return explorer.meanByShift(explorer.scoresByShift(layer, 0, 6, 5), 6, 5);
        })()""",
        layer,
    )
    expected = mean_by_offset(attention_probabilities(encoding, 6, 5))
    assert (torch.tensor(found, dtype=torch.float64) - expected.flatten()).abs().max() < CLOSE


def test_every_half_precision_number_is_read(javascript):
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    numbers = numbers[numbers.isfinite()]
    file = base64.b64encode(save({"x": numbers})).decode()
    assert javascript("explorer.readTensors(bytes(given)).x.data", file) == numbers.tolist()


def test_checksum(javascript):
    content = bytes(torch.randint(0, 256, (1000,)).tolist())
    assert javascript(
        "explorer.crc32(bytes(given))", base64.b64encode(content).decode()
    ) == zlib.crc32(content)


@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_a_damaged_file_is_refused(javascript, damage):
    content = save({"x": torch.rand(30)})
    broken = content[:-1] + bytes([content[-1] ^ 1]) if damage == "flipped" else content[:-9]
    file = {"name": "it", "crc32": zlib.crc32(content), "base64": base64.b64encode(broken).decode()}
    said = javascript("explorer.load(given).then(() => 'nothing', (error) => error.message)", file)
    assert said.startswith("it is damaged") and "Reload the page" in said


def test_states_and_addresses(javascript):
    state = {"model": "sa-quadratic--digits-brief--seed0", "query": "4,5", "note": "a b&c=d#"}
    assert javascript("explorer.stateOf(explorer.addressOf(given))", state) == state
    assert javascript("explorer.addressOf(given)", {"query": "4,5"}) == "#query=4,5"
    assert javascript("explorer.stateOf('#a-heading')") == {}
    assert javascript(
        "[explorer.numbersOf('1, 2', 2), explorer.numbersOf('1,', 2) ?? 0,"
        " explorer.numbersOf('1,x', 2) ?? 0]"
    ) == [
        [1, 2],
        0,
        0,
    ]
