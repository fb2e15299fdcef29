"""What the paper's tables list, in their order (Cordonnier, Loukas and Jaggi, ICLR 2020); a model's
numbers are in its spec."""

TABLE_4 = (
    "resnet18",
    "sa-quadratic",
    "sa-generalized",
    "sa-generalized-pruned",
    "sa-learned",
    "sa-learned-content",
    "sa-quadratic-16",  # of appendix F, for which the table has no row
)
TABLE_1 = ("resnet18", "sa-quadratic", "sa-learned", "sa-learned-content")

# Table 2: name as printed, value as printed, the parameter of `parameters.RunParameters` that holds
# it, if one does.
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
