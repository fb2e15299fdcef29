"""What the paper prints in its tables (Cordonnier, Loukas and Jaggi, ICLR 2020), and what a replication found."""

from typing import NamedTuple


class PublishedModel(NamedTuple):
    """A row of Table 4, as printed."""

    label: str
    accuracy: float | None  # on CIFAR-10; None: the paper gives none
    parameters: str
    flops: str
    replicated: float | None  # accuracy found by Varma and Prabhu (2020), one seed


TABLE_4 = {
    "resnet18": PublishedModel("ResNet18", 0.938, "11.2M", "1.1B", 0.9463),
    "sa-quadratic": PublishedModel("SA quadratic", 0.938, "12.1M", "6.2B", 0.9365),
    "sa-generalized": PublishedModel("SA quadratic, generalised", 0.934, "12.1M", "6.2B", None),
    "sa-generalized-pruned": PublishedModel("SA quadratic, generalised, pruned", 0.934, "9.7M", "4.9B", None),
    "sa-learned": PublishedModel("SA learned", 0.918, "12.3M", "6.2B", 0.9036),
    "sa-learned-content": PublishedModel("SA learned + content", 0.871, "29.5M", "15B", 0.8636),
    "sa-quadratic-16": PublishedModel("SA quadratic, 16 heads", None, "", "", 0.9311),  # appendix F, without numbers
}
TABLE_1 = ("resnet18", "sa-quadratic", "sa-learned", "sa-learned-content")

# Table 2: name as printed, value as printed, the parameter of `config.RunParameters` that holds it, if one does.
TABLE_2 = (
    ("number of layers", "6", "num_layers"),
    ("number of heads", "9", None),
    ("hidden dimension", "400", "hidden"),
    ("intermediate dimension", "512", "intermediate"),
    ("invertible pooling width", "2", "pooling"),
    ("dropout probability", "0.1", "dropout"),
    ("layer normalization epsilon", "10⁻¹²", None),
    ("number of epochs", "300", "epochs"),
    ("batch size", "100", "batch_size"),
    ("learning rate", "0.1", "learning_rate"),
    ("weight decay", "0.0001", "weight_decay"),
    ("momentum", "0.9", None),
    ("cosine decay", "yes", "schedule"),
    ("linear warm up ratio", "0.05", "warm_up"),
)
