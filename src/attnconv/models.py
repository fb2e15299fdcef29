"""The models of Table 4: images `(B, C, H, W)` in, logits `(B, classes)` out.

Letters: B batch, D hidden dimension, N_h heads.
"""

import inspect
from collections.abc import Callable

import torch
import torchvision
from torch import Tensor, nn

from .encodings import GeneralizedQuadraticEncoding, LearnedRelativeEncoding, PositionEncoding, QuadraticEncoding
from .layers import PositionAttention


class Block(nn.Module):
    """One layer of the paper's network: attention, then a two-layer perceptron, each with residual and LayerNorm."""

    def __init__(self, encoding: PositionEncoding, hidden: int, intermediate: int, dropout: float, attention_dropout: float):
        super().__init__()
        self.attention = PositionAttention(encoding, hidden, hidden, attention_dropout)
        self.dense = nn.Linear(hidden, hidden)  # in the published code, not in the paper's formulas
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.mlp = nn.Sequential(nn.Linear(hidden, intermediate), nn.GELU(), nn.Linear(intermediate, hidden))
        self.mlp_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, X: Tensor) -> Tensor:  # (B, H, W, D) -> (B, H, W, D)
        X = self.attention_norm(X + self.dropout(self.dense(self.attention(X))))
        return self.mlp_norm(X + self.dropout(self.mlp(X)))


class SelfAttentionNet(nn.Module):
    """The fully attentional network of section 4.1: images `(B, in_channels, H, W)` -> logits `(B, num_classes)`.

    Invertible down-sampling by `pooling` (space to depth), a linear map to `hidden`, `num_layers` blocks whose attention uses
    what `make_encoding` makes, the mean over the pixels and a linear classifier.
    """

    def __init__(
        self,
        make_encoding: Callable[[], PositionEncoding],
        in_channels: int,
        num_classes: int,
        pooling: int,
        num_layers: int,
        hidden: int,
        intermediate: int,
        dropout: float,
        attention_dropout: float,
    ):
        super().__init__()
        self.in_channels, self.pooling = in_channels, pooling
        self.embedding = nn.Linear(in_channels * pooling**2, hidden)
        self.blocks = nn.ModuleList(
            Block(make_encoding(), hidden, intermediate, dropout, attention_dropout) for _ in range(num_layers)
        )
        self.classifier = nn.Linear(hidden, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        p = self.pooling
        if images.ndim != 4 or images.shape[1] != self.in_channels or images.shape[2] % p or images.shape[3] % p:
            raise ValueError(
                f"got images of shape {tuple(images.shape)}, expected (batch, {self.in_channels}, height, width)"
                f" with sides divisible by {p}"
            )
        X = images.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # (B, C, H/p, p, W/p, p)
        X = X.permute(0, 2, 4, 3, 5, 1).flatten(3)  # (B, H/p, W/p, p * p * C)
        X = self.embedding(X)
        for block in self.blocks:
            X = block(X)
        return self.classifier(X.mean(dim=(1, 2)))

    @property
    def encodings(self) -> list[PositionEncoding]:
        """The position encoding of each layer, first to last."""
        return [block.attention.encoding for block in self.blocks]


def self_attention_net(
    encoding: str = "quadratic",
    num_heads: int = 9,
    image_size: int = 32,
    in_channels: int = 3,
    num_classes: int = 10,
    pooling: int = 2,
    num_layers: int = 6,
    hidden: int = 400,
    intermediate: int = 512,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    center_std: float = 2.0,
    learned_dim: int = 400,
) -> SelfAttentionNet:
    """The paper's network; the defaults are Table 2's, where text and published code differ the code's (see `encodings`)."""
    size = image_size // pooling
    make_encoding = {
        "quadratic": lambda: QuadraticEncoding(num_heads, center_std=center_std),
        "generalized": lambda: GeneralizedQuadraticEncoding(num_heads, center_std=center_std),
        "learned": lambda: LearnedRelativeEncoding(num_heads, size, size, learned_dim),
    }[encoding]
    return SelfAttentionNet(
        make_encoding, in_channels, num_classes, pooling, num_layers, hidden, intermediate, dropout, attention_dropout
    )


def resnet18(in_channels: int = 3, num_classes: int = 10) -> nn.Module:
    """ResNet18 in its CIFAR form: torchvision's, with a 3 x 3 stem of stride 1 and without the first max-pooling."""
    model = torchvision.models.resnet18(num_classes=num_classes)
    model.conv1 = nn.Conv2d(in_channels, 64, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
    return model


MODELS: dict[str, tuple[Callable[..., nn.Module], dict]] = {
    "resnet18": (resnet18, {}),
    "sa-quadratic": (self_attention_net, {"encoding": "quadratic"}),
    "sa-quadratic-16": (self_attention_net, {"encoding": "quadratic", "num_heads": 16}),
    "sa-generalized": (self_attention_net, {"encoding": "generalized"}),
    "sa-learned": (self_attention_net, {"encoding": "learned"}),
}


def build_model(name: str, **overrides) -> nn.Module:
    """A model of Table 4 by name, freshly initialised: images `(B, 3, 32, 32)` in, logits `(B, 10)` out.

    `overrides` are the keyword arguments of `self_attention_net` or `resnet18`. ValueError for an unknown name or override.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}, expected one of {', '.join(sorted(MODELS))}")
    build, settings = MODELS[name]
    allowed = [key for key in inspect.signature(build).parameters if key not in settings]
    if unknown := sorted(set(overrides) - set(allowed)):
        raise ValueError(f"unknown override {', '.join(unknown)} for {name}, expected some of {', '.join(allowed)}")
    return build(**settings, **overrides)


def head_geometry(model: SelfAttentionNet) -> dict[str, Tensor]:
    """Where the heads of a quadratic model attend: `centers` `(layers, N_h, 2)` in pixels and `alpha` `(layers, N_h)`."""
    with torch.no_grad():
        return {
            "centers": torch.stack([encoding.centers.clone() for encoding in model.encodings]),
            "alpha": torch.stack([encoding.alpha.clone() for encoding in model.encodings]),
        }
