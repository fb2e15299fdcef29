"""The directives `{explorer} attention|convolution|pixel`, a view of the explorer in a page, and
`{stage}`, the stage as wide as the page; with `:scene: heads` that scene alone, within the text.
Their files lie in `_static/explorer`.

The text below the directive is what is read where no script runs. Runs of the quick tier are
trained first where need be.
"""

import html
import io
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from attnconv import figures
from attnconv.explorer import page_html
from attnconv.explorer.networks import add_network_scene
from attnconv.explorer.payload import (
    Payload,
    attention_payload,
    convolution_payload,
    pixel_payload,
    stage_payload,
)
from attnconv.models import ARMS, MODELS
from attnconv.runs.select import Records
from attnconv.store import write_file
from attnconv.training.quick import quick_model, quick_runs

FOLDER = "_static/explorer"
WITH_ATTENTION = [model for model in MODELS if model.startswith("sa-")]
OF_THE_STAGE = ("cnn", "sa-quadratic", "sa-learned-content")
NO_SCRIPT = "The stage needs JavaScript. The picture below shows three moments of it."
FREED = [arm for arm, spec in ARMS.items() if spec.start.freed]


def write_files(built: str, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        write_file(Path(built, FOLDER, name), content)


def attention_of_runs(place: str) -> Payload:
    """The runs on CIFAR-10 as far as there are any (of the small tier one seed each, the long one,
    and the freed CNNs), and the quick tier's."""
    quick, records = quick_runs(WITH_ATTENTION), Records.read()
    small = [
        run for tier in ("small", "small-long") for run in records.at(tier).of(*WITH_ATTENTION)
    ]
    small += records.at("small-free").of(*FREED)
    one_each = [run for run in small if run.info.parameters["seed"] == 0]
    on_cifar10 = records.at("paper").of(*WITH_ATTENTION) + one_each
    models = {
        record.name: quick_model("sa-learned-content")
        for record in quick
        if "mean_maps" in record.attention
    }
    return attention_payload([*on_cifar10, *quick], models, place)


class Explorer(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        up = "../" * self.env.docname.count("/")
        makers = {
            "attention": lambda: attention_of_runs(up + FOLDER),
            "convolution": convolution_payload,
            "pixel": pixel_payload,
        }
        view = self.arguments[0]
        if view not in makers:
            raise self.error(
                f"unknown view {view!r} of the explorer, expected one of {', '.join(makers)}"
            )
        payload = makers[view]()
        write_files(self.env.app.outdir, payload.files)
        return [nodes.raw("", page_html(view, payload.data, " ".join(self.content)), format="html")]


class Stage(SphinxDirective):
    """Insert the stage; the content describes the still shown in print and without scripts."""

    has_content = True
    option_spec: ClassVar = {"scene": directives.unchanged_required}

    def run(self):
        scene, up = self.options.get("scene"), "../" * self.env.docname.count("/")
        payload = stage_payload(scene, up + FOLDER)
        if not scene:
            small = Records.read(tier="small")
            add_network_scene(payload, [small.of(model)[0] for model in OF_THE_STAGE])
        view = page_html("stage", payload.data, NO_SCRIPT)
        embedded = " stage-embedded" if scene else ""
        drawn, text = io.BytesIO(), html.escape(" ".join(self.content))
        figures.still().savefig(drawn, format="png", dpi=160)
        payload.files["still.png"] = drawn.getvalue()
        write_files(self.env.app.outdir, payload.files)
        still = f'<p class="stage-still"><img src="{up}{FOLDER}/still.png" alt="{text}"></p>'
        page = f'<div class="stage-host{embedded}">\n{view}{still}\n</div>'
        return [nodes.raw("", page, format="html")]


def setup(app):
    app.add_directive("stage", Stage)
    app.add_directive("explorer", Explorer)
    return {"parallel_read_safe": True}
