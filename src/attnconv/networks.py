"""The networks of Table 4, and a function that builds them by name.

All networks map images `(B, C, H, W)` to logits `(B, classes)`.

Letters: B batch, D hidden dimension, N_h heads.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from .cnn import WIDTH, SmallCNN
from .layers.attention import ContentAttention, PositionAttention
from .layers.encodings import (
    GeneralizedQuadraticEncoding,
    LearnedOffsetEmbedding,
    LearnedRelativeEncoding,
    QuadraticEncoding,
)
from .theory.encodings import CENTER_STD

#: Heads of an attention layer, unless its network says otherwise.
NUM_HEADS = 9
#: Heads left in each layer of the paper's pruned network: [2, 4, 1, 2, 6, 0] of nine were pruned.
PUBLISHED_HEADS_LEFT = (7, 5, 8, 7, 3, 9)
#: The sizes and dropout rates of the paper's network: Table 2, completed from the published code.
PAPER_SIZES: dict[str, Any] = {
    "num_layers": 6,
    "hidden": 400,
    "intermediate": 512,
    "pooling": 2,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "center_std": CENTER_STD,
}


class Block(nn.Module):
    """A layer of the paper's network: attention followed by a two-layer perceptron.

    Attention and perceptron each have a residual connection and a LayerNorm.
    """

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
    """The paper's fully attentional network for image classification. Section 4.1.

    It consists of invertible down-sampling by `pooling` (space to depth), a linear map to `hidden`
    dimensions, one block for each of the `attentions`, the mean over the pixels, and a linear
    classifier. It maps images `(B, in_channels, H, W)` to logits `(B, num_classes)`.
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
        fits = images.ndim == 4 and images.shape[1] == self.in_channels
        if not fits or images.shape[2] % p or images.shape[3] % p:
            raise ValueError(
                f"got images of shape {tuple(images.shape)}, expected (batch, {self.in_channels},"
                f" height, width) with sides divisible by {p}"
            )
        X = images.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # (B, C, H/p, p, W/p, p)
        X = self.embedding(X.permute(2, 4, 0, 3, 5, 1).flatten(3))  # (H/p, W/p, B, hidden)
        for block in self.blocks:
            X = block(X)
        return self.classifier(X.mean(dim=(0, 1)))

    @property
    def attentions(self) -> list[PositionAttention | ContentAttention]:
        """The attention layers of the network, in order."""
        return [cast(Block, block).attention for block in self.blocks]


ENCODINGS = ("quadratic", "generalized", "learned", "content")


def self_attention_net(
    encoding: str = "quadratic",
    num_heads: int | Sequence[int] = NUM_HEADS,
    image_size: int = 32,
    in_channels: int = 3,
    num_classes: int = 10,
    pooling: int = PAPER_SIZES["pooling"],
    num_layers: int = PAPER_SIZES["num_layers"],
    hidden: int = PAPER_SIZES["hidden"],
    intermediate: int = PAPER_SIZES["intermediate"],
    dropout: float = PAPER_SIZES["dropout"],
    attention_dropout: float = PAPER_SIZES["attention_dropout"],
    center_std: float = PAPER_SIZES["center_std"],
    alpha_form: str = "square",
    learned_dim: int | None = None,
    share_encoding: bool = False,
) -> SelfAttentionNet:
    """Return a freshly initialised instance of the paper's fully attentional network.

    The defaults are those of Table 2. Where the paper's text and the published code differ, the
    defaults follow the code, which produced the paper's numbers. `num_heads` may differ between
    layers, as after pruning. For `center_std` and `alpha_form`, see `QuadraticEncoding`.
    `learned_dim` is the size of the learned vector for each row offset and each column offset. Its
    default is `hidden` = 400 without content (200 in the paper's text) and `hidden // 2` = 200 with
    content, so that D_k = 400. `share_encoding` gives all layers the same r_delta, as in section
    2.3.
    """
    heads = [num_heads] * num_layers if isinstance(num_heads, int) else list(num_heads)
    if len(heads) != num_layers:
        raise ValueError(f"got num_heads for {len(heads)} layers, expected {num_layers}")
    size = image_size // pooling
    dim = learned_dim or (hidden // 2 if encoding == "content" else hidden)
    share = share_encoding and encoding in ("learned", "content")
    shared = LearnedOffsetEmbedding(size, size, dim) if share else None

    def attention(n: int) -> PositionAttention | ContentAttention:
        if encoding == "quadratic":
            positions = QuadraticEncoding(n, 2, center_std, alpha_form)
        elif encoding == "generalized":
            positions = GeneralizedQuadraticEncoding(n, center_std)
        else:
            by_offset = shared or LearnedOffsetEmbedding(size, size, dim)
            if encoding == "content":
                return ContentAttention(by_offset, n, hidden, hidden, attention_dropout)
            positions = LearnedRelativeEncoding(n, by_offset)
        return PositionAttention(positions, hidden, hidden, attention_dropout)

    if encoding not in ENCODINGS:
        raise ValueError(f"unknown encoding {encoding!r}, expected one of {', '.join(ENCODINGS)}")
    attentions = [attention(n) for n in heads]
    return SelfAttentionNet(
        attentions, in_channels, num_classes, pooling, hidden, intermediate, dropout
    )


def resnet18(in_channels: int = 3, num_classes: int = 10, width: int = WIDTH) -> nn.Module:
    """Return a freshly initialised ResNet18 in its CIFAR form.

    It is torchvision's ResNet18 with a 3 x 3 stem of stride 1 and without the first max-pooling.
    The four stages have 1, 2, 4 and 8 times `width` channels. As in the published code, the weights
    have the default initialisation of torch's layers rather than torchvision's.
    """
    import torchvision  # imported here, because importing it takes seconds

    model: Any = torchvision.models.resnet18(num_classes=num_classes)
    if width != WIDTH:
        _set_width(model, width, num_classes)
    model.conv1 = nn.Conv2d(in_channels, width, kernel_size=3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.reset_parameters()
    model.in_channels = in_channels
    return model


def _set_width(model: Any, width: int, num_classes: int) -> None:
    """Replace the stages of torchvision's ResNet18 with stages of the given width."""
    block = type(model.layer1[0])
    model.inplanes = width
    model.bn1 = nn.BatchNorm2d(width)
    model.layer1 = model._make_layer(block, width, 2)
    model.layer2 = model._make_layer(block, 2 * width, 2, stride=2)
    model.layer3 = model._make_layer(block, 4 * width, 2, stride=2)
    model.layer4 = model._make_layer(block, 8 * width, 2, stride=2)
    model.fc = nn.Linear(8 * width, num_classes)


#: The networks that `build_model` knows, by name.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": resnet18,
    "sa-quadratic": partial(self_attention_net, "quadratic"),
    "sa-quadratic-16": partial(self_attention_net, "quadratic", num_heads=16),
    "sa-generalized": partial(self_attention_net, "generalized"),
    "sa-generalized-pruned": partial(
        self_attention_net, "generalized", num_heads=PUBLISHED_HEADS_LEFT
    ),
    "sa-learned": partial(self_attention_net, "learned"),
    "sa-learned-content": partial(self_attention_net, "content"),
    "cnn": SmallCNN,
}


def build_model(name: str, **overrides) -> nn.Module:
    """Return a freshly initialised network from Table 4, or the CNN of chapter 14, by its name.

    Args:
        name: One of the names in `NETWORKS`.
        **overrides: Keyword arguments of `self_attention_net`, `resnet18` or `SmallCNN`.

    Returns:
        The network, which by default maps images `(B, 3, 32, 32)` to logits `(B, 10)`.

    Raises:
        ValueError: If the name or an override is unknown.

    Example:
        >>> import attnconv, torch
        >>> model = attnconv.build_model("sa-quadratic", num_layers=2, hidden=16)
        >>> model(torch.rand(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown model {name!r}, expected one of {', '.join(sorted(NETWORKS))}")
    build = NETWORKS[name]
    allowed = inspect.signature(build).parameters
    if unknown := sorted(set(overrides) - set(allowed)):
        raise ValueError(
            f"unknown override {', '.join(unknown)} for {name}, expected some of"
            f" {', '.join(allowed)}"
        )
    return build(**overrides)


#: The criterion of appendix E; the default arguments below are those of the published code.
PAPER_CRITERION = {"max_condition": 1e5, "min_eigenvalue": 1e-5}


def degenerate_heads(
    encoding: GeneralizedQuadraticEncoding, max_condition: float = 1e3, min_eigenvalue: float = 1e-5
) -> Tensor:
    """Return a boolean mask `(N_h,)` of the degenerate heads of a layer. Appendix E.

    A degenerate head attends to a thin stripe (condition number of `Sigma^-1` above
    `max_condition`) or to all pixels equally (largest eigenvalue below `min_eigenvalue`, in inverse
    squared pixels).
    """
    # the squared singular values of S are the eigenvalues of S S^T
    singular = torch.linalg.svdvals(encoding.root.detach().double())
    largest, smallest = singular.square().unbind(dim=1)
    return (largest < min_eigenvalue) | (largest > max_condition * smallest)


def prune_degenerate_heads(
    model: SelfAttentionNet, max_condition: float = 1e3, min_eigenvalue: float = 1e-5
) -> tuple[SelfAttentionNet, list[list[int]]]:
    """Return a copy of a network without its degenerate heads, and each layer's removed heads.

    A head is degenerate if it attends to a thin stripe or to all pixels equally; see
    `degenerate_heads`. The default criterion is that of the published code, and `PAPER_CRITERION`
    is that of the paper's text.

    Args:
        model: A network with the generalised quadratic encoding.
        max_condition: A head is removed if the condition number of its `Sigma^-1` is above this.
        min_eigenvalue: A head is removed if the largest eigenvalue of its `Sigma^-1` is below this,
            in inverse squared pixels.

    Returns:
        The copy and, for each layer, the list of removed heads, numbered from 0. The remaining
        heads keep their scores and values, and the output biases b_out are kept.

    Raises:
        TypeError: If the model does not have the generalised quadratic encoding.

    Example:
        >>> import attnconv, torch
        >>> model = attnconv.build_model("sa-generalized", num_layers=1, hidden=16)
        >>> with torch.no_grad():
        ...     _ = model.attentions[0].encoding.root[2].zero_()  # uniform attention
        >>> pruned, removed = attnconv.prune_degenerate_heads(model)
        >>> removed, pruned.attentions[0].num_heads
        ([[2]], 8)
    """
    encodings = [getattr(layer, "encoding", None) for layer in getattr(model, "attentions", [])]
    if not encodings or not all(isinstance(e, GeneralizedQuadraticEncoding) for e in encodings):
        raise TypeError(
            f"got {type(model).__name__}, expected a network with the generalised quadratic"
            " encoding (sa-generalized)"
        )
    pruned = copy.deepcopy(model)
    removed = []
    for attention in cast(list[PositionAttention], pruned.attentions):
        encoding = cast(GeneralizedQuadraticEncoding, attention.encoding)
        degenerate = degenerate_heads(encoding, max_condition, min_eigenvalue)
        kept = (~degenerate).nonzero().flatten()
        by_head = attention.value.weight.detach().unflatten(1, (-1, attention.dim_in))
        value = by_head[:, kept].flatten(1)
        attention.encoding = encoding.select(kept)
        attention.value.in_features = value.shape[1]
        attention.value.weight = nn.Parameter(value.clone())
        removed.append(degenerate.nonzero().flatten().tolist())
    return pruned, removed
