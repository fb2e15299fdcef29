import pytest
import torch
from helpers.models import PARAMETERS
from helpers.ways import head_averages

from attnconv import build_model, prune_degenerate_heads
from attnconv.networks import PAPER_CRITERION, degenerate_heads
from companion.gaps import largest_gap
from companion.runs.history import snapshot
from companion.specs import MODELS

SMALL = {
    "num_layers": 2,
    "num_heads": 9,
    "hidden": 16,
    "intermediate": 8,
    "image_size": 8,
    "learned_dim": 4,
}


def test_every_model_is_in_the_table():
    assert set(MODELS) == set(PARAMETERS)


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_parameter_counts(name):
    assert sum(p.numel() for p in build_model(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name != "resnet18"])
def test_a_batch_is_its_single_items(name):
    model = build_model(name, **SMALL).eval()
    images = torch.randn(3, 3, 8, 8)
    single = torch.cat([model(image[None]) for image in images])
    assert torch.allclose(model(images), single, atol=1e-5)
    assert single.shape == (3, 10)


def test_space_to_depth_keeps_the_published_order():
    model = build_model("sa-quadratic", **SMALL)
    image = torch.randn(1, 3, 8, 8)
    seen = []
    model.embedding.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(image)
    for i in range(4):
        for j in range(4):
            patch = image[0, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]  # (C, dy, dx)
            assert torch.equal(seen[0][i, j, 0], patch.permute(1, 2, 0).flatten())  # (dy, dx, rgb)


def test_snapshots():
    shapes = {
        "sa-quadratic": {"centers": (9, 2), "alpha": (9,)},
        "sa-generalized": {"centers": (9, 2), "precision": (9, 2, 2)},
        "sa-learned": {"row_scores": (9, 7), "column_scores": (9, 7)},
        "sa-learned-content": {},
        "resnet18": {},
    }
    for name, expected in shapes.items():
        model = build_model(name, **SMALL) if name != "resnet18" else build_model(name)
        found = {key: tuple(value.shape) for key, value in snapshot(model).items()}
        assert found == {
            f"layer{layer}.{key}": shape for layer in (1, 2) for key, shape in expected.items()
        }
    model = build_model("sa-quadratic", **SMALL)
    assert torch.equal(snapshot(model)["layer2.centers"], model.attentions[1].encoding.centers)
    learned = build_model("sa-learned", **SMALL)
    scores = learned.attentions[0].encoding.position_scores(4, 4)  # (N_h, H, W, H, W)
    rows = snapshot(learned)["layer1.row_scores"]
    columns = snapshot(learned)["layer1.column_scores"]
    # offset (-3, 1)
    assert torch.allclose(scores[:, 3, 1, 0, 2], rows[:, 0] + columns[:, 4], atol=1e-6)


def test_options_where_text_and_code_differ():
    direct = build_model("sa-quadratic", **SMALL, alpha_form="direct").attentions[0].encoding
    assert torch.equal(direct.alpha, direct.spread) and torch.allclose(
        direct.alpha, torch.tensor(0.5), atol=0.05
    )
    with pytest.raises(ValueError, match="alpha_form is 'log', expected one of square, direct"):
        build_model("sa-quadratic", alpha_form="log")
    assert build_model("sa-learned").attentions[0].encoding.embedding.dim == 400
    assert build_model("sa-learned", learned_dim=200).attentions[0].encoding.embedding.dim == 200
    for name, own in (("sa-learned", 6), ("sa-learned-content", 6)):
        for share, count in ((False, own), (True, 1)):
            model = build_model(name, share_encoding=share)
            assert (
                sum(
                    p.shape == (31, 400 if name == "sa-learned" else 200)
                    for p in model.parameters()
                )
                == 2 * count
            )
    with pytest.raises(ValueError, match="got num_heads for 6 layers, expected 3"):
        build_model("sa-generalized-pruned", num_layers=3)


def spoiled_model():
    """A generalised model with a thin-striped head (0), a flat one (1) and a singular one (2) in
    its second layer."""
    model = build_model("sa-generalized", **SMALL).eval()
    with torch.no_grad():
        root = model.attentions[1].encoding.root
        # condition number 2500: degenerate for the code, not for the text
        root[0] = torch.tensor([[50.0, 0.0], [0.0, 1.0]])
        root[1] = 1e-3 * torch.eye(2)
        root[2] = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    return model


def test_pruning_removes_degenerate_heads_and_leaves_the_others_as_they_were():
    model = spoiled_model()
    pruned, removed = prune_degenerate_heads(model)
    assert removed == [[], [0, 1, 2]] and prune_degenerate_heads(model, **PAPER_CRITERION)[1] == [
        [],
        [1, 2],
    ]
    assert degenerate_heads(model.attentions[1].encoding).sum() == 3
    X = torch.randn(2, 4, 4, 16)
    for before, after, lost in zip(model.attentions, pruned.attentions, removed, strict=True):
        kept = [head for head in range(9) if head not in lost]
        assert torch.equal(head_averages(after, X), head_averages(before, X)[..., kept, :])
        # the layer's output is the sum over the kept heads and b_out: the second route masks the
        # others' values
        masked = head_averages(before, X).clone()
        masked[..., lost, :] = 0
        assert largest_gap(after(X).detach(), before.value(masked.flatten(-2)).detach()) < 1e-6
    assert [p.numel() for p in pruned.parameters()] == [
        p.numel()
        for p in build_model("sa-generalized-pruned", **SMALL | {"num_heads": (9, 6)}).parameters()
    ]
    assert torch.equal(model.attentions[1].encoding.root[2], torch.ones(2, 2)), (
        "the model itself stays as it was"
    )
    pruned(torch.randn(2, 3, 8, 8)).sum().backward()


def test_pruning_every_head_and_the_wrong_model():
    model = build_model("sa-generalized", **SMALL).eval()
    pruned, removed = prune_degenerate_heads(model, max_condition=0.5)
    assert removed == [list(range(9))] * 2
    assert pruned(torch.randn(3, 3, 8, 8)).shape == (3, 10)
    with pytest.raises(
        TypeError, match="expected a network with the generalised quadratic encoding"
    ):
        prune_degenerate_heads(build_model("sa-quadratic", **SMALL))
    with pytest.raises(TypeError, match="got ResNet"):
        prune_degenerate_heads(build_model("resnet18"))


def test_unknown_names_and_overrides_are_refused():
    with pytest.raises(
        ValueError, match="unknown model 'resnet50', expected one of cnn, resnet18, sa"
    ):
        build_model("resnet50")
    with pytest.raises(
        ValueError,
        match="unknown override depth for sa-quadratic, expected some of num_heads, image_size",
    ):
        build_model("sa-quadratic", depth=3)
    with pytest.raises(ValueError, match="sides divisible by 2"):
        build_model("sa-quadratic", **SMALL)(torch.randn(1, 3, 7, 8))
