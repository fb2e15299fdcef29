"""The directives `{explorer}` and `{stage}`, whose files lie in `_static/explorer`.

`{explorer}` shows the heads of trained networks. `{stage}` shows the stage, as wide as the page;
with `:scene: heads`, it shows this scene alone, within the text.

The text below `{explorer}` is shown where no script runs. Below `{stage}`, a paragraph for each
scene describes the still of the scene: the first sentence is the caption, and the others are the
alternative text. Runs of the quick tier are trained first if they are missing.
"""

import html
import io
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from attnconv import figures, load_model
from companion.explorer import page_html
from companion.explorer.networks import add_network_scene
from companion.explorer.payload import Payload, attention_payload, stage_payload
from companion.runs.select import Records
from companion.specs import MODELS
from companion.store import write_file
from companion.studies.freed.arms import STARTS
from companion.training.quick import quick_model, quick_runs

FOLDER = "_static/explorer"
WITH_ATTENTION = [model for model in MODELS if model.startswith("sa-")]
OF_THE_STAGE = ("cnn", "sa-quadratic", "sa-learned-content")
NO_SCRIPT = "The stage needs JavaScript. A still of each scene stands below."
FREED = [arm for arm, start in STARTS.items() if start.freed]


def write_files(built: str, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        write_file(Path(built, FOLDER, name), content)


def attention_of_runs(place: str) -> Payload:
    """Return the attention of the existing runs on CIFAR-10 and of the quick tier's runs.

    Of the small tiers (the short runs, the long ones and the freed CNNs), only seed 0 is included.
    """
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
    has_content = True

    def run(self):
        payload = attention_of_runs("../" * self.env.docname.count("/") + FOLDER)
        write_files(self.env.app.outdir, payload.files)
        page = page_html("attention", payload.data, " ".join(self.content))
        return [nodes.raw("", page, format="html")]


class Stage(SphinxDirective):
    """Insert the stage, and a still of each scene for print and for pages without scripts."""

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
        names = [scene] if scene else list(STILLS)
        texts = "\n".join(self.content).split("\n\n")
        if len(texts) != len(names):
            expected = f"expected a paragraph for each of the scenes {', '.join(names)}"
            raise self.error(f"got {len(texts)} paragraphs, {expected}")
        stills = []
        for name, text in zip(names, texts, strict=True):
            STILLS[name]().savefig(drawn := io.BytesIO(), format="png", dpi=160)
            payload.files[f"still-{name}.png"] = drawn.getvalue()
            caption, alternative = text.replace("\n", " ").strip().split(". ", maxsplit=1)
            stills.append(
                # lazy: a still is not loaded where the stage takes its place
                f'<figure class="stage-still"><img src="{up}{FOLDER}/still-{name}.png"'
                f' alt="{html.escape(alternative)}" loading="lazy">'
                f"<figcaption>{html.escape(caption)}.</figcaption></figure>"
            )
        write_files(self.env.app.outdir, payload.files)
        page = f'<div class="stage-host{embedded}">\n{view}{"".join(stills)}\n</div>'
        return [nodes.raw("", page, format="html")]


def still_of_networks():
    return figures.network_still(load_model("cnn"), load_model("sa-quadratic"))


# The function that draws the still of each scene, in the order of the stage.
STILLS = {
    "heads": figures.still,
    "descent": figures.descent_still,
    "network": still_of_networks,
}


def setup(app):
    app.add_directive("stage", Stage)
    app.add_directive("explorer", Explorer)
    return {"parallel_read_safe": True}
