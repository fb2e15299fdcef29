import math

import pytest
import torch

from companion.runs.parameters import RunParameters
from companion.specs import MODELS, SPECS, recipe
from companion.tiers import TIERS


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, r"unknown parameter epoch = 3\. "),
        ({"epochs": "ten"}, "epochs = 'ten': Input should be a valid integer"),
        ({"epochs": 3.0}, "epochs = 3.0: Input should be a valid integer"),
        ({"epochs": 0}, "epochs = 0: Input should be greater than or equal to 1"),
        ({"learning_rate": math.nan}, "learning_rate = nan: Input should be a finite number"),
        ({"model": "sa"}, "model = 'sa': expected one of resnet18, sa-quadratic"),
        ({"model": ["sa"]}, r"model = \['sa'\]: Input should be a valid string"),
        ({"dataset": "cifar"}, "dataset = 'cifar': expected one of digits, cifar10"),
        ({"schedule": "linear"}, "schedule = 'linear': Input should be 'cosine', 'multistep' or"),
        ({"augment": 1}, "augment = 1: Input should be a valid boolean"),
        ({"seed": -1, "warm_up": 1.0}, "seed = -1: .*; warm_up = 1.0: "),
        ({"model": "sa-learned-content", "hidden": 7}, "hidden = 7: expected an even number for"),
        ({"pooling": 3}, "pooling = 3: expected a divisor of 8, .* of digits"),
    ],
)
def test_parameters_name_what_was_wrong(values, message):
    with pytest.raises(ValueError, match=message) as caught:
        RunParameters.check(values)
    known = "Known parameters: model, dataset, tier, seed, epochs, train_images"
    assert known in str(caught.value)


def test_parameters_from_a_notebook_see_every_new_name():
    namespace = {"torch": torch}
    before = dict(namespace)
    namespace |= {"before": before, "epochs": 2, "_i1": "", "In": [], "model": "resnet18"}
    found = RunParameters.from_notebook(namespace | {"batch_size": None}, before)
    assert found == RunParameters(epochs=2, model="resnet18")
    with pytest.raises(ValueError, match="unknown parameter epoch = 3"):
        RunParameters.from_notebook(namespace | {"epoch": 3}, before)
    with pytest.raises(ValueError, match="unknown parameter torch = 3"):
        RunParameters.from_notebook(namespace | {"torch": 3}, before)


def test_parameters_from_a_command_line():
    texts = {"epochs": "2", "learning_rate": "3e-2", "augment": "true", "train_images": "None"}
    texts["model"] = "sa-learned"
    expected = RunParameters(epochs=2, learning_rate=0.03, augment=True, model="sa-learned")
    assert RunParameters.from_texts(texts) == expected
    with pytest.raises(ValueError, match="epochs = 'two'"):
        RunParameters.from_texts({"epochs": "two"})
    folders = {"runs": "2024", "checkpoints": "1e3"}
    assert RunParameters.from_texts(folders) == RunParameters(**folders)


def test_recipes_are_the_papers_and_the_published_codes():
    """Table 2; where it is silent, the published code."""
    for model in MODELS:
        parameters = RunParameters(model=model, dataset="cifar10")
        pruned = model == "sa-generalized-pruned"
        assert parameters.epochs == (100 if pruned else 300)
        assert parameters.learning_rate == (0.01 if pruned else 0.1)
        assert parameters.schedule == ("multistep" if model == "resnet18" else "cosine")
        assert parameters.batch_size == 100 and parameters.weight_decay == 1e-4
        assert parameters.optimizer == "sgd" and parameters.augment
        assert parameters.position_rate == 1 and parameters.max_condition == 1000
    known = set(RunParameters.model_fields)
    for model, spec in MODELS.items():
        assert all(set(recipe(model, tier)) <= known for tier in spec.recipes)
    given = {"dataset": "cifar10", "hidden": 48, "seed": 3}
    parent = RunParameters(model="sa-generalized-pruned", **given).parent()
    assert parent == RunParameters(model="sa-generalized", **given)
    assert RunParameters(model="sa-generalized-pruned", epochs=2).parent().epochs == 6


@pytest.mark.parametrize("model", [name for name, spec in SPECS.items() if spec.parent])
def test_a_parent_follows_the_recipe_of_every_tier(model):
    """In a fixed tier, the parent's parameters are those of its own run in that tier."""
    for tier in SPECS[model].tiers or [name for name in TIERS if not TIERS[name].models]:
        about = {"dataset": TIERS[tier].dataset, "tier": tier}
        parent = RunParameters.check({"model": model} | about).parent()
        expected = RunParameters.check({"model": SPECS[model].parent} | about)
        if TIERS[tier].fixed:
            assert parent == expected
        assert parent.epochs == expected.epochs or tier == "quick"


def rates(steps, **values):
    parameters = RunParameters(dataset="cifar10", **values)
    return [
        parameters.learning_rate_at(epoch, step, steps)
        for epoch in range(parameters.epochs)
        for step in range(steps)
    ]


def test_the_published_schedule():
    """Set once per epoch: 0 in the first, 0.1 after the 15th, then the cosine."""
    found = rates(2)
    assert found[0] == found[1] == 0 and found[2] == found[3] == pytest.approx(0.1 / 15)
    last = 0.05 * (1 + math.cos(math.pi * 284 / 285))
    assert found[30] == 0.1 and found[-1] == pytest.approx(last)
    found = rates(1, model="resnet18")
    moments = [found[epoch] for epoch in (0, 79, 80, 149, 150, 249, 250, 299)]
    assert moments == pytest.approx([0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3, 1e-4, 1e-4])


def test_the_schedule_by_step_is_torchs_chain_of_schedulers():
    found = rates(50, epochs=20, schedule_every="step", warm_up=0.1)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 100)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 900)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [100])
    for rate in found:
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        optimizer.step()
        schedule.step()


def test_identity_leaves_out_where_and_how_it_runs():
    where = {"device": "cpu", "runs": "a", "processes": 2, "compile": "default"}
    one = RunParameters(checkpoint_every=3, resume=True, **where)
    assert one.identity() == RunParameters().identity() != RunParameters(seed=1).identity()
    for device, precision in {"cpu": "float32", "cuda": "bfloat16"}.items():
        assert RunParameters().on(device).precision == precision
    assert RunParameters(precision="float32").on("cuda").precision == "float32"
