"""The stage's gradient descent in JavaScript: its gradient against autograd, its steps against
torch's Adam, and what it finds."""

import math

import pytest
import torch
from helpers.javascript import run_node

from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.grid import offset_set, pixels
from companion.explorer.descent import ALPHA, CENTER_RATE, DECAY, STEPS, VALUE_RATE, find_positions

REACH = 6
SHIFTS = offset_set((3, 3))
DOUBLE = {"dtype": torch.float64}
KERNELS = torch.tensor(
    [[-1, 0, 1, -2, 0, 2, -1, 0, 1], [1, 2, 1, 2, 4, 2, 1, 2, 1], [-2, -1, 0, -1, 1, 1, 0, 1, 2]],
    **DOUBLE,
)  # Sobel, blur, emboss
TARGETS = {"one-pixel filters": torch.eye(9, **DOUBLE), "one kernel": KERNELS[:1]}


def loss_of(centers, spreads, values, targets):
    """The relative squared error of the filters on a 13 x 13 window of offsets, densely."""
    offsets = pixels(2 * REACH + 1, 2 * REACH + 1).double() - REACH
    distances = (offsets - centers.unsqueeze(1)).square().sum(dim=-1)  # (9, 169)
    maps = (-spreads.square().unsqueeze(1) / 2 * distances).softmax(dim=1)
    asked = torch.zeros(len(targets), len(offsets), **DOUBLE)
    for number, shift in enumerate(SHIFTS):
        asked[:, (offsets == shift).all(dim=1)] = targets[:, number : number + 1]
    return (values.T @ maps - asked).square().sum() / asked.square().sum()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("sharpness", [0.5, 6.0])
def test_the_gradient_is_autograds(name, sharpness):
    targets = TARGETS[name]
    centers, spreads, values = (
        scale * torch.randn(*shape, **DOUBLE)
        for scale, shape in ((2, (9, 2)), (1, (9,)), (1, (9, len(targets))))
    )
    given = [centers, spreads.abs() * sharpness + 0.1, values]
    loss = loss_of(*(value.requires_grad_() for value in given), targets)
    expected = torch.autograd.grad(loss, given)
    names = ("centers", "spreads", "values")
    program = """
    const { lossAndGradient } = await from("descent/gradient");
    const parameters = Object.fromEntries(
      Object.entries(given.parameters).map(([key, values]) => [key, Float64Array.from(values)]));
    return lossAndGradient(parameters, given.targets);
    """
    parameters = dict(zip(names, (value.flatten().tolist() for value in given), strict=True))
    found = run_node(program, {"parameters": parameters, "targets": targets.tolist()})
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-9)
    for key, value in zip(names, expected, strict=True):
        gap = (torch.tensor(found["gradient"][key], **DOUBLE) - value.flatten()).abs().max()
        assert gap < 1e-9 * max(1, value.abs().max()), f"{key}: {gap:.1e}"


def test_the_softmax_is_the_packages():
    """The window's softmax is that of a quadratic head whose query is the middle pixel."""
    encoding = QuadraticEncoding(9).double()
    with torch.no_grad():
        maps = encoding.position_scores(13, 13)[:, REACH, REACH].flatten(1).softmax(dim=1)
        values = torch.randn(9, 9).double()
        asked = torch.zeros(9, 13, 13).double()
        for number, (row, column) in enumerate(SHIFTS.tolist()):
            asked[number, row + REACH, column + REACH] = 1
        expected = (values.T @ maps - asked.flatten(1)).square().sum() / 9
        ours = loss_of(encoding.centers, encoding.spread, values, torch.eye(9).double())
    assert ours.item() == pytest.approx(expected.item(), rel=1e-12)


def test_the_steps_are_those_of_torchs_adamw():
    """Forty steps of a short schedule, without the page's own optimizer."""
    program = """
    const { Descent } = await from("descent/gradient");
    const descent = new Descent(3, undefined, { steps: 40 });
    const start = structuredClone(descent.parameters);
    const losses = [];
    while (!descent.done) { descent.step(); losses.push(descent.loss); }
    return { start, end: descent.parameters, losses, recipe: descent.recipe };
    """
    found = run_node(program, None)
    recipe = found["recipe"]
    start = {key: torch.tensor(value, **DOUBLE) for key, value in found["start"].items()}
    centers, values = start["centers"].view(9, 2), start["values"].view(9, 9)
    parameters = [value.requires_grad_() for value in (centers, start["spreads"], values)]
    optimizer = torch.optim.AdamW(
        [
            {"params": parameters[:2], "lr": recipe["centerRate"], "weight_decay": 0},
            {"params": parameters[2:], "lr": recipe["valueRate"], "weight_decay": recipe["decay"]},
        ]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe["steps"])
    for expected in found["losses"]:
        loss = loss_of(*parameters, torch.eye(9).double())
        assert expected == pytest.approx(loss.item(), rel=1e-9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    for value, key in zip(parameters, ("centers", "spreads", "values"), strict=True):
        end = torch.tensor(found["end"][key], **DOUBLE)
        torch.testing.assert_close(end, value.detach().flatten(), atol=1e-9, rtol=1e-9)


def test_the_still_is_drawn_from_the_same_descent():
    """The package's descent, from which the still is drawn, against the page's."""
    program = """
    const { Descent } = await from("descent/gradient");
    const descent = new Descent(0, undefined, { steps: given });
    const start = Array.from(descent.parameters.centers);
    while (!descent.done) descent.step();
    return { start, end: descent.parameters };
    """
    steps = 40
    found = run_node(program, steps)
    ours = find_positions(torch.tensor(found["start"], **DOUBLE).view(9, 2), steps)
    end = {key: torch.tensor(value, **DOUBLE) for key, value in found["end"].items()}
    close = {"atol": 1e-9, "rtol": 1e-9}
    torch.testing.assert_close(ours.centers[-1], end["centers"].view(9, 2), **close)
    torch.testing.assert_close(ours.alphas[-1], end["spreads"].square() / 2, **close)
    torch.testing.assert_close(ours.values[-1], end["values"].view(9, 9), **close)
    recipe = run_node("return (await from('descent/gradient')).RECIPE;", None)
    names = ("steps", "centerRate", "valueRate", "decay", "alpha")
    assert [recipe[name] for name in names] == [STEPS, CENTER_RATE, VALUE_RATE, DECAY, ALPHA]


FINDS = """
const { Descent, ONE_KERNEL, found } = await from("descent/gradient");
const kernel = given.targets && ONE_KERNEL;
return Array.from({ length: given.seeds }, (_, seed) => {
  const descent = new Descent(seed, given.targets ?? undefined, kernel ?? undefined);
  while (!descent.done) descent.step();
  return [found(descent.parameters.centers), Math.sqrt(descent.loss)];
});
"""


@pytest.mark.slow
def test_most_starts_find_the_nine_positions():
    runs = run_node(FINDS, {"seeds": 32})
    assert sum(found == 9 for found, _ in runs) >= 28


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS.tolist())
def test_one_kernel_is_imitated_without_its_positions(kernel):
    runs = run_node(FINDS, {"seeds": 8, "targets": [kernel]})
    assert max(found for found, _ in runs) <= 3
    assert max(error for _, error in runs) < 0.05


@pytest.mark.slow
def test_a_head_that_is_pulled_away_is_replaced():
    program = """
    const { Descent, found } = await from("descent/gradient");
    const descent = new Descent(0);
    const finish = () => {
      while (!descent.done) descent.step();
      return found(descent.parameters.centers);
    };
    const before = finish();
    return Array.from({ length: 9 }, (_, head) => {
      descent.pull(head, [2.4, 2.1]);
      return [before, found(descent.parameters.centers), finish()];
    });
    """
    for before, away, after in run_node(program, None):
        assert (before, away, after) == (9, 8, 9)


def test_numbers_are_mulberry32s():
    """The first numbers of a known implementation, in Python's integers."""

    def mulberry32(state):
        while True:
            state = (state + 0x6D2B79F5) & 0xFFFFFFFF
            t = (state ^ (state >> 15)) * (state | 1) & 0xFFFFFFFF
            t ^= (t + ((t ^ (t >> 7)) * (t | 61) & 0xFFFFFFFF)) & 0xFFFFFFFF
            yield ((t ^ (t >> 14)) & 0xFFFFFFFF) / 2**32

    program = """
    const { randomNumbers } = await from("descent/gradient");
    const random = randomNumbers(7);
    return Array.from({ length: 1000 }, random);
    """
    numbers = run_node(program, None)
    assert numbers == [number for number, _ in zip(mulberry32(7), range(1000), strict=False)]
    assert abs(sum(numbers) / 1000 - 0.5) < 4 / math.sqrt(12_000)


def test_positions_are_counted_within_a_radius():
    centers = [[i + 0.1, j - 0.1] for i, j in SHIFTS.tolist()]
    centers[0] = [1.03, 1.0]  # none near the first position
    centers[8] = [0.75, 1.0]
    given = {"centers": [number for center in centers for number in center]}
    program = """
    const { found } = await from("descent/gradient");
    return [found(given.centers), found(given.centers, 0.05), found(given.centers, 0.3)];
    """
    assert run_node(program, given) == [8, 1, 8]
