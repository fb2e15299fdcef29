"""Tests of what the stage's scenes draw: beams, clouds and trails. Needs `make book`."""

import torch
from helpers.javascript import run_node
from helpers.stage import canvas, disc, in_colour, near, rgb, spot

from attnconv.theory.grid import offset_set
from companion.colors import HEAD_COLORS

KERNEL = offset_set((3, 3)).tolist()
# Where descent's nine heads are, every ten steps: row and column by turns.
PATHS = """
const { Descent } = await from("descent/gradient");
const descent = new Descent(0), paths = [];
for (; descent.steps < 300; descent.step())
  if (descent.steps % 10 === 0) paths.push([...descent.parameters.centers]);
return paths;
"""


def test_a_line_leads_from_the_output_pixel_to_the_pixel_of_each_head(stage):
    page = stage("alpha=exact&kernel=blur&query=70,60").page
    box, pixels = page.locator(".stage-beams").bounding_box(), canvas(page, ".stage-beams")
    start = spot(page, ".stage-pixels", 60.5 / 120, 70.5 / 80)
    for head, (row, column) in enumerate(KERNEL):
        line, end = in_colour(pixels, HEAD_COLORS[head]), disc(page, row, column)
        for share in (0.5, 0.7, 0.9, 0.99):
            x, y = (a + share * (b - a) for a, b in zip(start, end, strict=True))
            assert near(line, x - box["x"], y - box["y"]), (head + 1, share)


def test_soft_heads_have_clouds_in_their_colours_and_wide_beams(stage):
    planes, beams = {}, {}
    for alpha in ("exact", 2, 0.3):
        page = stage(f"alpha={alpha}").page
        planes[alpha] = canvas(page, ".stage-plane canvas")[..., :3].float()
        beams[alpha] = (canvas(page, ".stage-beams")[..., 3] > 0).sum()
    cell = len(planes["exact"]) // 7
    for head, (row, column) in enumerate(KERNEL):
        rows, columns = (slice((n + 3) * cell, (n + 4) * cell) for n in (row, column))
        exact, sharp, soft = (plane[rows, columns] for plane in planes.values())
        colour = rgb(HEAD_COLORS[head])
        assert (soft - exact).abs().mean() > 10, head + 1
        assert (sharp - colour).abs().mean() < (exact - colour).abs().mean(), head + 1
    assert 2 * beams["exact"] < beams[2] < beams[0.3]


def test_trails_show_the_way_that_the_heads_went(stage):
    page = stage("scene=descent", motion="reduce").page
    paths = run_node(PATHS, {})

    def share_on_trails():
        pixels = canvas(page, ".stage-plane canvas")
        trails = [in_colour(pixels, colour, tolerance=3) for colour in HEAD_COLORS]
        places = (torch.tensor(paths).view(-1, 9, 2) + 3.5) / 7 * len(pixels)
        found = [
            near(trail, across, down)
            for moment in places.tolist()
            for trail, (down, across) in zip(trails, moment, strict=True)
        ]
        return sum(found) / len(found)

    before = share_on_trails()
    for number in (1, 2, 3):
        page.get_by_role("button", name=f"Next ({number} of 4)").click()
        page.clock.run_for(50)
    assert before < 0.3 and share_on_trails() > 0.95


def test_clouds_lie_on_the_picture_where_the_heads_look(scene):
    seen = []
    for layer in (1, 2):
        page = scene(f"mode=where&layer={layer}").page
        pixels = canvas(page, ".stage-pixels")[..., :3]
        coloured = pixels.amax(-1) - pixels.amin(-1) > 20  # the picture is grey
        assert coloured.float().mean() > 0.05, "more than the dots"
        seen.append(pixels)
    assert ((seen[0] - seen[1]).abs().amax(-1) > 20).float().mean() > 0.05
