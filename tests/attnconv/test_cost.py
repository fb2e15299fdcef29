"""Costs against the tables of the paper, the published code's exact counts, and closed forms."""

import pytest
import torch
from helpers.fresh import run_fresh
from helpers.models import PARAMETERS
from packaging.version import Version
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.flop_counter import FlopCounterMode

from attnconv import build_model, convert_network, cost_of
from companion.specs import MODELS

# 2 x multiply-adds of linear and convolution layers, in billions, as the paper prints them (Tables
# 1 and 4) ...
PAPER = {
    "resnet18": "1.1",
    "sa-quadratic": "6.2",
    "sa-generalized": "6.2",
    "sa-generalized-pruned": "4.9",
    "sa-learned": "6.2",
    "sa-learned-content": "15",
}
# ... and exactly. For the learned encoding the two maps 400 -> 9 act on the 16 x 16 offsets of each
# axis.
EXACT = {
    "resnet18": 1_110_845_440,
    "sa-quadratic": 6_175_956_800,
    "sa-generalized": 6_175_956_800,
    "sa-generalized-pruned": 6_175_956_800 - 15 * 2 * 256 * 400 * 400,
    "sa-learned": 6_175_956_800 + 6 * 2 * 2 * 256 * 400 * 9,
    "sa-learned-content": 6_175_956_800 + 6 * 2 * 2 * 256 * 400 * 3600,
    "sa-quadratic-16": 6_175_956_800 + 6 * 7 * 2 * 256 * 400 * 400,
}
MILLIONS = {
    "sa-generalized-pruned": "9.7",
    "sa-learned-content": "29.5",
    "resnet18": "11.2",
    "sa-learned": "12.3",
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_costs_of_table_1_and_4(name):
    cost = cost_of(build_model(name))
    assert cost.parameters == PARAMETERS[name] and cost.flops_paper == EXACT[name]
    if name in PAPER:
        digits = len(PAPER[name].partition(".")[2])
        assert f"{cost.flops_paper / 1e9:.{digits}f}" == PAPER[name]
        assert f"{cost.parameters / 1e6:.1f}" == MILLIONS.get(name, "12.1")
    pairs = 256**2
    dense = {
        "quadratic": 6 * 9 * pairs * 2 * (400 + 3),
        "quadratic-16": 6 * 16 * pairs * 2 * (400 + 3),
        "generalized": 6 * 9 * pairs * 2 * (400 + 5),
        "generalized-pruned": 39 * pairs * 2 * (400 + 5),
        "learned": 6 * 9 * pairs * 2 * 400,
        "learned-content": 6 * 9 * 2 * (pairs * (400 + 400) + 256 * 32 * 200),
    }
    assert cost.flops == cost.flops_paper + (
        dense[name.removeprefix("sa-")] if name != "resnet18" else 0
    )
    assert cost.flops_executed >= cost.flops_paper


def test_separable_attention_costs_an_eighth():
    """Beyond linear layers, H + W products are executed instead of H * W: 32 instead of 256."""
    cost = cost_of(build_model("sa-quadratic"))
    assert cost.flops_executed - cost.flops_paper == 6 * 9 * 256 * 32 * 400 * 2
    dense = cost_of(build_model("sa-generalized"))
    assert dense.flops_executed - dense.flops_paper == pytest.approx(
        6 * 9 * 256 * 256 * 400 * 2, rel=0.02
    )


def test_cost_leaves_the_model_as_it_was():
    model = build_model("sa-quadratic", num_layers=1, hidden=8, intermediate=8, image_size=8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small, large = cost_of(model, image_size=8), cost_of(model, image_size=16)
    assert model.training and not any(module._forward_hooks for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    # four times the pixels, one classifier
    assert large.flops_paper - 2 * 80 == 4 * (small.flops_paper - 2 * 80)


def test_cost_of_any_network():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, groups=1), nn.Flatten(), nn.Linear(4 * 36, 5))
    cost = cost_of(network, image_size=8)
    assert cost.flops_paper == cost.flops == 2 * (36 * 4 * 27 + 144 * 5)


def flops_of_torch(network, *inputs):
    """Return what torch's counter reports for convolutions and linear layers."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(*inputs)
    return counter.get_total_flops()


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Conv2d(1, 4, 3)
        self.sound = nn.Conv1d(2, 4, 5, groups=2)

    def forward(self, image, sound):
        return self.image(image).sum() + self.sound(sound).sum()


IMAGE = torch.randn(2, 1, 9, 7)
SOUND = torch.randn(3, 2, 40)
ONE_CHANNEL = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(2), nn.Linear(14 * 22, 5))


@pytest.mark.parametrize(
    ("network", "options", "inputs"),
    [
        (ONE_CHANNEL, {"image_size": (16, 24)}, (torch.zeros(1, 1, 16, 24),)),
        (ONE_CHANNEL, {"images": torch.randn(3, 1, 16, 24)}, (torch.randn(3, 1, 16, 24),)),
        (nn.Conv1d(2, 6, 5, stride=2), {"image_size": (40,)}, (torch.zeros(1, 2, 40),)),
        (TwoInputs(), {"images": (IMAGE, SOUND)}, (IMAGE, SOUND)),
        (TwoInputs(), {"images": {"sound": SOUND, "image": IMAGE}}, (IMAGE, SOUND)),
    ],
    ids=["rectangle, one channel", "batch", "sequence", "two inputs", "named inputs"],
)
def test_cost_of_any_input(network, options, inputs):
    cost = cost_of(network, **options)
    expected = flops_of_torch(network, *inputs)
    assert cost.flops_paper == cost.flops == cost.flops_executed == expected > 0
    converted = convert_network(network)
    assert cost_of(converted, **options).flops_paper == expected


def test_the_cost_of_a_batch_is_that_of_its_images():
    for name in ("sa-quadratic", "sa-learned-content"):
        network = build_model(name, num_layers=1, hidden=8, intermediate=8, image_size=8)
        one, three = (cost_of(network, images=torch.zeros(count, 3, 8, 8)) for count in (1, 3))
        assert cost_of(network, 8) == one
        assert three.flops - three.flops_paper == 3 * (one.flops - one.flops_paper) > 0


def test_a_network_with_an_expanded_class_token():
    class WithToken(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.zeros(1, 1, 3))
            self.layer = nn.TransformerEncoderLayer(3, 1, 4, batch_first=True)
            self.attention = nn.MultiheadAttention(3, 1, batch_first=True)

        def forward(self, images):
            x = self.layer(images.flatten(2).mT)
            return self.attention(self.token.expand(len(x), -1, -1), x, x)[0]

    model = WithToken()
    model.attention.in_proj_bias.requires_grad_(False)
    assert cost_of(model, 4).flops_paper == 2 * 16 * 2 * 12  # the layer's two Linear modules
    frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
    assert frozen == ["attention.in_proj_bias"]


def test_a_network_that_does_not_run_is_named():
    with pytest.raises(
        ValueError, match=r"Linear does not run on an image of shape \(1, 3, 8, 8\)"
    ):
        cost_of(nn.Linear(5, 2), 8)
    assert cost_of(nn.Linear(5, 2), images=torch.zeros(1, 5)).flops_paper == 20


def test_cost_of_a_converted_network():
    """The published operations are those of the CNN; every query attends to the padded image."""
    network = nn.Sequential(
        nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        nn.Flatten(2),
        nn.Conv1d(6, 2, 2),
        nn.Flatten(),
        nn.Linear(2 * 15, 5),
    )
    network.in_channels = 4
    converted = convert_network(network)
    converted.in_channels = 4
    cost, of_cnn = cost_of(converted, image_size=8), cost_of(network, image_size=8)
    assert cost.flops_paper == of_cnn.flops_paper == 2 * (16 * 6 * 18 + 15 * 2 * 12 + 30 * 5)
    # 9 heads, 16 queries and 100 keys, then 2 heads, 15 queries and 16 keys; v and r_delta have
    # three numbers, or two along a sequence
    attention = 9 * 16 * 100 * (4 + 3) + 2 * 15 * 16 * (6 + 2)
    assert cost.flops == cost.flops_paper + 2 * attention


def test_cost_keeps_the_mode_of_each_part():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    network[1].eval()  # frozen
    cost_of(network, 8)
    assert [module.training for module in network.modules()] == [True, True, False]


def test_cost_undoes_what_a_module_does_in_evaluation_mode():
    """As adapters that are merged into the weights for evaluation."""

    class Adapter(nn.Linear):
        merged = False

        def train(self, mode=True):
            self.merged = not mode
            return super().train(mode)

    network = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten(), Adapter(4, 2))
    for mode in (True, False):
        network.train(mode)
        cost_of(network, 8)
        assert network[2].training == mode and network[2].merged != mode


def test_the_products_of_fused_attention_are_counted():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    class OfPixels(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Conv2d(3, 8, 1)
            self.layer = layer

        def forward(self, images):
            return self.layer(self.embedding(images).flatten(2).mT)

    pixels = 16
    hidden = 8
    linear = 3 * 8 + 4 * hidden**2 + 2 * hidden * 16  # embedding, projections and perceptron
    expected = 2 * pixels * linear + 2 * 2 * pixels**2 * hidden
    assert cost_of(OfPixels(), 4).flops_executed == expected
    assert torch.backends.mha.get_fastpath_enabled()


class Flexible(nn.Module):
    """Attention among pixels by torch's flex_attention."""

    in_channels = 8

    def __init__(self, is_compiled):
        super().__init__()
        self.attend = torch.compile(flex_attention) if is_compiled else flex_attention

    def forward(self, images):
        tokens = images.flatten(2).mT.unsqueeze(1)
        return self.attend(tokens, tokens, tokens)


flex_is_counted = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.15"), reason="torch's counter fails in flex_attention"
)


@flex_is_counted
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_products_of_flex_attention_are_counted(is_compiled):
    assert cost_of(Flexible(is_compiled), 4).flops_executed == 2 * 2 * 16**2 * 8


LATE = """
import torch
from torch import nn
from attnconv import cost_of

class Late(nn.Module):
    in_channels = 8

    def forward(self, images):
        from torch.nn.attention.flex_attention import flex_attention

        tokens = images.flatten(2).mT.unsqueeze(1)
        return flex_attention(tokens, tokens, tokens)

print(cost_of(Late(), 4).flops_executed)
"""


@flex_is_counted
def test_flex_attention_is_counted_if_the_model_imports_it_in_its_forward_pass():
    assert int(run_fresh(LATE).stdout) == 2 * 2 * 16**2 * 8
