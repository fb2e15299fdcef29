"""The models of Table 4, and how any model is built: images `(B, C, H, W)` in, logits
`(B, classes)` out.

Letters: B batch, D hidden dimension, N_h heads.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from torch import Tensor, nn

from ..layers.attention import ContentAttention, PositionAttention
from ..theory.encodings import (
    GeneralizedQuadraticEncoding,
    LearnedRelativeEncoding,
    LearnedShiftEmbedding,
    QuadraticEncoding,
)
from .cnn import START_ALPHA, SmallCNN, attention_layers, begin
from .recipes import PAPER_RECIPE
from .specs import NUM_HEADS, SPECS, Start


class Block(nn.Module):
    """One layer of the paper's network: attention, then a two-layer perceptron, each with residual
    and LayerNorm."""

    def __init__(
        self,
        attention: PositionAttention | ContentAttention,
        hidden: int,
        intermediate: int,
        dropout: float,
    ):
        super().__init__()
        self.attention = attention
        self.dense = nn.Linear(hidden, hidden)  # in the published code, not in the paper's formulas
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, intermediate), nn.GELU(), nn.Linear(intermediate, hidden)
        )
        self.mlp_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, X: Tensor) -> Tensor:  # (H, W, B, D) -> (H, W, B, D)
        attended = self.attention(X.permute(2, 0, 1, 3)).permute(1, 2, 0, 3)
        X = self.attention_norm(X + self.dropout(self.dense(attended)))
        return self.mlp_norm(X + self.dropout(self.mlp(X)))


class SelfAttentionNet(nn.Module):
    """The fully attentional network of section 4.1: images `(B, in_channels, H, W)` -> logits
    `(B, num_classes)`.

    Invertible down-sampling by `pooling` (space to depth), a linear map to `hidden`, one block for
    each of the `attentions`, the mean over the pixels and a linear classifier.
    """

    def __init__(
        self,
        attentions: Sequence[PositionAttention | ContentAttention],
        in_channels: int,
        num_classes: int,
        pooling: int,
        hidden: int,
        intermediate: int,
        dropout: float,
    ):
        super().__init__()
        self.in_channels, self.pooling = in_channels, pooling
        self.embedding = nn.Linear(in_channels * pooling**2, hidden)
        self.blocks = nn.ModuleList(
            Block(attention, hidden, intermediate, dropout) for attention in attentions
        )
        self.classifier = nn.Linear(hidden, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        p = self.pooling
        if (
            images.ndim != 4
            or images.shape[1] != self.in_channels
            or images.shape[2] % p
            or images.shape[3] % p
        ):
            raise ValueError(
                f"got images of shape {tuple(images.shape)}, expected (batch, {self.in_channels},"
                f" height, width) with sides divisible by {p}"
            )
        X = images.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # (B, C, H/p, p, W/p, p)
        # (H/p, W/p, B, p * p * C), as the attention layers want it
        X = X.permute(2, 4, 0, 3, 5, 1).flatten(3)
        X = self.embedding(X)
        for block in self.blocks:
            X = block(X)
        return self.classifier(X.mean(dim=(0, 1)))

    @property
    def attentions(self) -> list[PositionAttention | ContentAttention]:
        """The attention layers, first to last."""
        return [cast(Block, block).attention for block in self.blocks]


ENCODINGS = ("quadratic", "generalized", "learned", "content")


def self_attention_net(
    encoding: str = "quadratic",
    num_heads: int | Sequence[int] = NUM_HEADS,
    image_size: int = 32,
    in_channels: int = 3,
    num_classes: int = 10,
    pooling: int = PAPER_RECIPE["pooling"],
    num_layers: int = PAPER_RECIPE["num_layers"],
    hidden: int = PAPER_RECIPE["hidden"],
    intermediate: int = PAPER_RECIPE["intermediate"],
    dropout: float = PAPER_RECIPE["dropout"],
    attention_dropout: float = PAPER_RECIPE["attention_dropout"],
    center_std: float = PAPER_RECIPE["center_std"],
    alpha_form: str = "square",
    learned_dim: int | None = None,
    share_encoding: bool = False,
) -> SelfAttentionNet:
    """The paper's network; the defaults are Table 2's and, where text and published code differ,
    the code's, since it made the paper's numbers.

    `num_heads` may differ from layer to layer, as after pruning. `center_std`, `alpha_form`: see
    `QuadraticEncoding`. `learned_dim` numbers per row shift and per column shift: by default 400
    without content (`hidden`; the text says 200) and 200 with content (`hidden // 2`, so that D_k =
    400). `share_encoding` gives all layers one r_delta, as section 2.3 says.
    """
    heads = [num_heads] * num_layers if isinstance(num_heads, int) else list(num_heads)
    if len(heads) != num_layers:
        raise ValueError(
            f"got num_heads for {len(heads)} layers, expected {num_layers} (num_layers)"
        )
    size = image_size // pooling
    dim = learned_dim or (hidden // 2 if encoding == "content" else hidden)
    shared = (
        LearnedShiftEmbedding(size, size, dim)
        if share_encoding and encoding in ("learned", "content")
        else None
    )

    def attention(n: int) -> PositionAttention | ContentAttention:
        if encoding == "quadratic":
            return PositionAttention(
                QuadraticEncoding(n, 2, center_std, alpha_form), hidden, hidden, attention_dropout
            )
        if encoding == "generalized":
            return PositionAttention(
                GeneralizedQuadraticEncoding(n, center_std), hidden, hidden, attention_dropout
            )
        shift_embedding = shared or LearnedShiftEmbedding(size, size, dim)
        if encoding == "learned":
            return PositionAttention(
                LearnedRelativeEncoding(n, shift_embedding), hidden, hidden, attention_dropout
            )
        return ContentAttention(shift_embedding, n, hidden, hidden, attention_dropout)

    if encoding not in ENCODINGS:
        raise ValueError(f"unknown encoding {encoding!r}, expected one of {', '.join(ENCODINGS)}")
    attentions = [attention(n) for n in heads]
    return SelfAttentionNet(
        attentions, in_channels, num_classes, pooling, hidden, intermediate, dropout
    )


def resnet18(in_channels: int = 3, num_classes: int = 10, width: int = 64) -> nn.Module:
    """ResNet18 in its CIFAR form: torchvision's, with a 3 x 3 stem of stride 1 and without the
    first max-pooling.

    Its four stages have `width`, 2, 4 and 8 times `width` channels; 64 is the published width. Its
    weights start as torch's layers do by themselves, as in the published code; torchvision would
    start them otherwise.
    """
    import torchvision  # here, since importing it takes seconds that the other models need not wait

    model: Any = torchvision.models.resnet18(num_classes=num_classes)
    if width != 64:
        _set_width(model, width, num_classes)
    model.conv1 = nn.Conv2d(in_channels, width, kernel_size=3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.reset_parameters()
    model.in_channels = in_channels
    return model


def _set_width(model: Any, width: int, num_classes: int) -> None:
    """Make the stages of torchvision's ResNet18, whose width it does not let one choose, anew."""
    model.inplanes, block = width, type(model.layer1[0])
    model.bn1 = nn.BatchNorm2d(width)
    model.layer1 = model._make_layer(block, width, 2)
    model.layer2 = model._make_layer(block, 2 * width, 2, stride=2)
    model.layer3 = model._make_layer(block, 4 * width, 2, stride=2)
    model.layer4 = model._make_layer(block, 8 * width, 2, stride=2)
    model.fc = nn.Linear(8 * width, num_classes)


def free_cnn(
    start: Start,
    in_channels: int = 3,
    num_classes: int = 10,
    width: int = 64,
    start_alpha: float = START_ALPHA,
    seed: int = 0,
) -> nn.Module:
    """An arm of chapter 15 that starts from an untrained `SmallCNN`; `seed`: of random places."""
    return begin(SmallCNN(in_channels, num_classes, width), start, start_alpha, seed)


CNNS: dict[str, Callable[..., nn.Module]] = {"resnet18": resnet18, "cnn": SmallCNN}


def build_model(name: str, **overrides) -> nn.Module:
    """A model of Table 4, `cnn` or an arm of chapter 15, by name, freshly initialised: images
    `(B, 3, 32, 32)` in, logits `(B, 10)` out.

    `overrides` are the keyword arguments of `self_attention_net`, `resnet18`, `SmallCNN` or
    `free_cnn`.
    ValueError for an unknown name or override.
    """
    if name not in SPECS:
        raise ValueError(f"unknown model {name!r}, expected one of {', '.join(sorted(SPECS))}")
    spec = SPECS[name]
    build: Callable[..., nn.Module] = CNNS.get(name, self_attention_net)
    if spec.start:
        build = partial(free_cnn, spec.start)
    fixed = {"encoding": spec.encoding} if spec.encoding else {}
    allowed = [key for key in inspect.signature(build).parameters if key not in fixed]
    if unknown := sorted(set(overrides) - set(allowed)):
        raise ValueError(
            f"unknown override {', '.join(unknown)} for {name}, expected some of"
            f" {', '.join(allowed)}"
        )
    return build(**fixed, **{**spec.defaults, **overrides})


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """What the figures need to know of a model's heads, on the CPU: `layer1.centers` and so on; see
    each encoding's `snapshot`.

    Empty for models whose attention no few numbers describe: with content, or without attention.
    """
    layers = model.attentions if isinstance(model, SelfAttentionNet) else attention_layers(model)
    return {
        f"layer{number}.{name}": value.cpu()
        for number, layer in enumerate(layers, start=1)
        if not isinstance(layer, ContentAttention)
        for name, value in layer.encoding.snapshot().items()
    }
