"""Known numbers of the models."""

# From the published code, to the unit; the paper's Table 4 has them rounded.
PARAMETERS = {
    "resnet18": 11_173_962,
    "sa-quadratic": 12_086_844,
    "sa-quadratic-16": 18_806_970,
    "sa-generalized": 12_087_006,
    "sa-generalized-pruned": 9_686_916,
    "sa-learned": 12_278_682,
    "sa-learned-content": 29_484_282,
}
