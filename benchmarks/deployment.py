"""Try to deploy each kind of network by each route, and store the outcomes for the page Use it.

This takes about ten minutes on two cores, so the page reads the stored outcomes instead of
repeating them. Prints the outcomes; with --write it also stores them, with the date, the versions
and the hardware, in benchmarks/results/deployment.json.

Usage: python benchmarks/deployment.py [--write]
"""

import argparse
import copy
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.onnx import ONNXProgram

from attnconv.layers.convert import conv_to_attention, convert_network
from attnconv.vit.start import init_as_convolution
from companion.gaps import largest_gap
from companion.runs.record import provenance
from companion.runs.weights import load_model
from companion.store import REPOSITORY

STORED = REPOSITORY / "benchmarks" / "results" / "deployment.json"  # shown on the page Use it


@dataclass(frozen=True)
class Example:
    """A network whose deployment is tested, and the input images for the test.

    `build` returns the network. Images have three channels, and their sides are multiples of `step`
    and at most `largest`; if `step` is None, the network accepts only images of `height` x `width`.
    Networks are exported with the images `given` and run on the images `other`, which differ in
    batch size and, unless `step` is None, also in height and width.
    """

    build: Callable[[], nn.Module]
    step: int | None
    height: int
    width: int
    largest: int | None = None

    @property
    def sides(self) -> str:
        """A description of the heights and widths that the network accepts."""
        if self.step is None:
            return f"{self.height} × {self.width} only"
        limit = f" up to {self.largest}" if self.largest else ""
        return ("any" if self.step == 1 else f"multiples of {self.step}") + limit

    @cached_property
    def network(self) -> nn.Module:
        return self.build().eval()

    @cached_property
    def given(self) -> Tensor:
        return torch.randn(2, 3, self.height, self.width)

    @cached_property
    def other(self) -> Tensor:
        step = self.step or 0
        return torch.randn(3, 3, self.height + step, self.width + 2 * step)

    @cached_property
    def exported(self) -> ExportedProgram:
        """The `torch.export` program for batches of at least two images of variable size.

        Sides are variable if `step` is set: from half to twice those of `given`, or up to
        `largest`. For strided layers, some guards are too complex for the solver, and a flag defers
        them to run time; some of these guards would refuse a batch of one image.
        """
        sides = {}
        if step := self.step:
            for axis, name in ((2, "height"), (3, "width")):
                count = self.given.shape[axis] // step
                most = self.largest // step if self.largest else 2 * count
                sides[axis] = step * Dim(name, min=count // 2 + 1, max=most)
        return torch.export.export(
            self.network,
            (self.given,),
            dynamic_shapes=({0: Dim("batch", min=2), **sides},),
            prefer_deferred_runtime_asserts_over_guards=True,
        )

    @cached_property
    def onnx(self) -> ONNXProgram:
        """The ONNX program of `exported`."""
        program = torch.onnx.export(self.exported, dynamo=True, verbose=False)
        assert program is not None, "torch.onnx.export returns a program unless it is given a file"
        return program


def _resnet18() -> nn.Module:
    from torchvision.models import resnet18  # imported here because this takes seconds

    return convert_network(resnet18())


def _started_vit() -> nn.Module:
    from timm.models.vision_transformer_relpos import VisionTransformerRelPos

    vit = VisionTransformerRelPos(
        img_size=32,
        patch_size=4,
        num_classes=10,
        embed_dim=36,
        depth=2,
        num_heads=9,
        mlp_ratio=2,
        rel_pos_type="bias",
    )
    init_as_convolution(vit)
    return vit


def _trained(model: str, largest: int | None = None) -> Example:
    return Example(lambda: load_model(model), 4, 20, 24, largest)


#: The networks by name. "converted CNN" and the `sa-` networks are trained (small tier).
NETWORKS: dict[str, Example] = {
    "converted layer": Example(
        lambda: conv_to_attention(nn.Conv2d(3, 8, 3, stride=2, padding=1)), 1, 12, 14
    ),
    "converted ResNet18": Example(_resnet18, 1, 64, 80),
    "converted CNN": Example(lambda: convert_network(load_model("cnn")), 8, 32, 40),
    "sa-quadratic": _trained("sa-quadratic"),
    "sa-quadratic-16": _trained("sa-quadratic-16"),
    "sa-generalized": _trained("sa-generalized"),
    "sa-generalized-pruned": _trained("sa-generalized-pruned"),
    "sa-learned": _trained("sa-learned", largest=32),
    "sa-learned-content": _trained("sa-learned-content", largest=32),
    "started vision transformer": Example(_started_vit, None, 32, 32),
}


def _in_onnxruntime(example: Example) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(example.onnx.model_proto.SerializeToString())
    name = session.get_inputs()[0].name
    return lambda images: torch.from_numpy(session.run(None, {name: images.numpy()})[0])


def _in(dtype: torch.dtype) -> Callable[[Example], Callable[[Tensor], Tensor]]:
    def cast(example: Example) -> Callable[[Tensor], Tensor]:
        network = copy.deepcopy(example.network).to(dtype)
        return lambda images: network(images.to(dtype))

    return cast


def _from_state_dict(example: Example) -> nn.Module:
    fresh = example.build().eval()
    fresh.load_state_dict(example.network.state_dict(), strict=True)
    return fresh


def _saved(example: Example) -> nn.Module:
    file = io.BytesIO()
    torch.save(example.network, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # safe, because it was written above


class Route(NamedTuple):
    """A way to deploy a network, and the largest relative change allowed in its output."""

    run: Callable[[Example], Callable[[Tensor], Tensor]]
    bound: float = 1e-5


#: The routes by name. Exports accept batches of at least two images and the sides given in
#: `Example.exported`.
ROUTES: dict[str, Route] = {
    "torch.export": Route(lambda example: example.exported.module()),
    "torch.compile": Route(lambda example: torch.compile(example.network)),
    "ONNX": Route(_in_onnxruntime),
    "bfloat16": Route(_in(torch.bfloat16), 0.1),
    "float16": Route(_in(torch.float16), 0.02),
    "state_dict": Route(_from_state_dict),
    "deepcopy": Route(lambda example: copy.deepcopy(example.network)),
    "torch.save": Route(_saved),
}


class Outcome(NamedTuple):
    """The outcome of a deployment: whether it works, and the output gap or why there is none."""

    works: bool
    gap: float | None
    reason: str = ""

    def __str__(self) -> str:
        if self.gap is None:
            return self.reason
        size = f"{self.gap:.0e}" if self.gap else "exact"
        return size if self.works else f"wrong: {size}"


@torch.no_grad()
def try_route(example: Example, route: Route) -> Outcome:
    """Deploy a network by one route, run it on `example.other`, and check its output.

    The gap is the largest difference from the original network's float32 output, relative to that
    output's largest value. If deploying or running it fails, the error's message is the reason.
    """
    try:
        found = route.run(example)(example.other).float()
    except ModuleNotFoundError as error:
        return Outcome(False, None, f"not run: {error.name} is not installed")
    except Exception as error:
        first_line = (str(error).strip().splitlines() or [""])[0]
        return Outcome(False, None, f"not supported: {type(error).__name__}: {first_line}")
    gap = largest_gap(found, example.network(example.other))
    return Outcome(gap <= route.bound, gap)


def deployment_rows(
    networks: Mapping[str, Example] = NETWORKS, routes: Mapping[str, Route] = ROUTES
) -> list[dict[str, str]]:
    """Try to deploy each network by each route, and return the outcomes, one row per network."""
    return [
        {"Network": name, "Image sides": example.sides}
        | {title: str(try_route(example, route)) for title, route in routes.items()}
        for name, example in networks.items()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"store the outcomes in {STORED.name}")
    given = parser.parse_args()
    rows = deployment_rows()
    for row in rows:
        print(row)
    if given.write:
        about = provenance(torch.device("cpu"), processes=1)
        content = {"date": date.today().isoformat(), **about, "rows": rows}
        STORED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
