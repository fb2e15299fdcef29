import math

import pytest
import torch
from torch import nn

from attnconv import load_dataset
from attnconv.config import ImitationParameters, RunParameters
from attnconv.data import load_photograph, whitened
from attnconv.models import MODELS
from attnconv.train import evaluate, imitate_convolution, train


def test_parameters_name_what_was_wrong():
    known = "Known parameters: model, dataset, epochs, batch_size, learning_rate, warm_up, seed"
    for values, message in [
        ({"epoch": 3}, r"unknown parameter epoch = 3\. "),
        ({"epochs": "ten"}, "epochs = 'ten': Input should be a valid integer"),
        ({"epochs": 3.0}, "epochs = 3.0: Input should be a valid integer"),
        ({"epochs": 0}, "epochs = 0: Input should be greater than or equal to 1"),
        ({"learning_rate": math.nan}, "learning_rate = nan: Input should be a finite number"),
        ({"model": "sa"}, "model = 'sa': expected one of resnet18, sa-generalized"),
        ({"dataset": "cifar"}, "dataset = 'cifar': expected one of digits"),
        ({"seed": -1, "warm_up": 1.0}, "warm_up = 1.0: .*; seed = -1: "),
    ]:
        with pytest.raises(ValueError, match=message) as caught:
            RunParameters.check(values)
        assert known in str(caught.value)


def test_parameters_from_a_notebook_see_every_new_name():
    namespace = {"torch": torch}
    before = set(namespace)
    namespace |= {"before": before, "epochs": 2, "_i1": "", "In": [], "model": "resnet18"}
    assert RunParameters.from_notebook(namespace, before) == RunParameters(epochs=2, model="resnet18")
    with pytest.raises(ValueError, match="unknown parameter epoch = 3"):
        RunParameters.from_notebook(namespace | {"epoch": 3}, before)


def test_schedule():
    parameters = RunParameters(learning_rate=0.1, warm_up=0.1)
    rates = [parameters.learning_rate_at(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(0.1 / 100) and rates[-1] == pytest.approx(0, abs=1e-6)
    assert max(rates) == pytest.approx(0.1, rel=0.03) and 95 <= rates.index(max(rates)) <= 100


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_trains_a_little(model):
    digits = load_dataset("digits")
    run = train(RunParameters(model=model, epochs=1, batch_size=300), digits)
    assert len(run.metrics) == 1 and math.isfinite(run.metrics[0]["train_loss"])
    assert not run.model.training
    if model.startswith("sa-quadratic"):
        heads = 16 if model.endswith("16") else 9
        assert run.heads["centers"].shape == (2, 3, heads, 2) and not torch.equal(*run.heads["centers"])


def test_the_same_seed_gives_the_same_run_and_another_seed_does_not():
    digits = load_dataset("digits")
    runs = [train(RunParameters(epochs=1, batch_size=300, seed=seed), digits) for seed in (1, 1, 2)]
    losses = [run.metrics[0]["train_loss"] for run in runs]
    assert losses[0] == losses[1] != losses[2]


def test_a_loss_that_is_not_finite_stops_the_run(monkeypatch):
    monkeypatch.setattr("attnconv.train.F.cross_entropy", lambda logits, labels: logits.sum() * math.nan)
    with pytest.raises(RuntimeError, match="the loss is nan in epoch 1, step 1; try a lower learning_rate"):
        train(RunParameters(epochs=1), load_dataset("digits"))


def test_evaluate_counts():
    class Fixed(nn.Module):
        def forward(self, x):
            return nn.functional.one_hot(x[:, 0, 0, 0].long(), 3).float()

    model = Fixed().train()
    images = torch.tensor([0.0, 1, 2, 2]).view(4, 1, 1, 1)
    assert evaluate(model, images, torch.tensor([0, 1, 2, 0]), batch_size=3) == 0.75
    assert model.training


def test_imitation_moves_towards_the_grid():
    conv = nn.Conv2d(3, 16, 3, padding=1)
    picture = whitened(load_photograph("china", (53, 80)))
    learned = imitate_convolution(conv, picture, ImitationParameters(steps=400))
    assert learned.centers.shape == (401, 9, 2) and learned.errors.shape == (400,)
    assert learned.errors[-20:].mean() < 0.2 < learned.errors[0]
    # the heads' parameters, not the random start, produced the output
    assert not torch.equal(learned.centers[0], learned.centers[-1])
