"""Theorem 1 in ExecuTorch, which runs torch's attention layers once they are exported.

Expected: torch's attention is exported as matrix products, additions and a softmax, which XNNPACK
computes on the CPU. A floating-point mask is one of the additions, so the heads' scores can be used
unchanged, and so can codes beside the content; in float32 the program differs from the convolution
by rounding. XNNPACK leaves bfloat16 to ExecuTorch's portable kernels, which should run it.
ExecuTorch also has an attention operator of its own, `llama::custom_sdpa`. Its mask is one matrix
for all heads, so the scores of nine heads do not fit into it, but codes in the queries and keys do.
"""

import torch
from common import cost, gap, record, versions
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 (registers the operator)
from executorch.runtime import Runtime
from in_torch import HEADS, TYPES, arrays, projections, set_linear
from torch import nn
from torch.nn import functional as F

versions("executorch", "torch")


def exported(module, *inputs):
    """Return a function that runs the exported module on the inputs in ExecuTorch."""
    program = torch.export.export(module.eval(), inputs)
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    program = Runtime.get().load_program(lowered.to_executorch().buffer)
    method = program.load_method("forward")

    def run(program=program):  # a method reads the memory of its program, which must not go
        return method.execute(inputs)[0]

    return run


class Function(nn.Module):
    """Compute values and outputs around an attention function that gets queries and keys."""

    def __init__(self, attend, dtype):
        super().__init__()
        self.attend = attend
        for name, array in arrays(dtype).items():
            self.register_buffer(name, array)

    def forward(self, tokens):
        values = tokens[:, None] @ self.values
        heads = self.attend(self, values)
        return heads.transpose(1, 2).flatten(2) @ self.output + self.bias


def with_mask(p, values):
    zero = torch.zeros_like(values)
    return F.scaled_dot_product_attention(zero, zero, values, attn_mask=p.scores[None])


def own_operator(p, values):
    """Call ExecuTorch's operator, whose queries, keys and values have one size and one layout."""
    query, key = (
        F.pad(p.codes @ matrices, (0, 2))[None].transpose(1, 2)
        for matrices in (p.query_matrices, p.key_matrices)
    )
    query = query * values.shape[-1] ** 0.5  # the operator divides scores by it
    heads = torch.ops.llama.custom_sdpa(query, key, values.transpose(1, 2), 0)
    return heads.transpose(1, 2)


def own_operator_with_mask(p, values):
    values = values.transpose(1, 2)
    zero = torch.zeros_like(values)
    return torch.ops.llama.custom_sdpa(zero, zero, values, 0, p.scores[None]).transpose(1, 2)


class Layer(nn.Module):
    """Apply torch's layer with the content and codes in 144 dimensions."""

    def __init__(self, _, dtype):
        super().__init__()
        p = arrays(dtype)
        self.layer = nn.MultiheadAttention(144, HEADS, batch_first=True, dtype=dtype)
        parts = self.layer.in_proj_weight.detach().view(3, HEADS, 16, 144)
        values, output = projections(dtype, 144, 16)
        parts.zero_()
        parts[0, :, :6, 8:13] = 4 * p["query_matrices"].mT  # the layer divides scores by sqrt(16)
        parts[1, :, :6, 8:13] = p["key_matrices"].mT
        parts[2].flatten(0, 1).copy_(values)
        nn.init.zeros_(self.layer.in_proj_bias)
        set_linear(self.layer.out_proj, output, p["bias"])
        self.register_buffer("beside", F.pad(p["codes"][None], (0, 131)))

    def forward(self, tokens):
        x = torch.cat([tokens, self.beside], dim=2)
        return self.layer(x, x, x, need_weights=False)[0][..., :8]


def convolution():
    p = arrays(torch.float32)
    layer = nn.Conv2d(8, 8, 3, padding=1)
    layer.weight.data, layer.bias.data = p["kernel"].permute(3, 2, 0, 1), p["bias"]
    return exported(layer, p["image"].permute(0, 3, 1, 2).contiguous())


def measure(module, attend=None):
    runs = [exported(module(attend, dtype), arrays(dtype)["tokens"]) for dtype in TYPES]
    gaps = [gap(run().double()) for run in runs]
    ratio = cost(runs[0], convolution())
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


record(
    "torch.nn.functional.scaled_dot_product_attention, exported to ExecuTorch",
    "mask argument",
    expresses=True,
    **measure(Function, with_mask),
    expected="The mask is added to the scores, so the construction runs unchanged.",
    observed="As expected, but XNNPACK computes products in bfloat16 too.",
)
record(
    "torch.nn.MultiheadAttention, exported to ExecuTorch",
    "codes beside the content",
    expresses=True,
    **measure(Layer),
    expected="The codes' queries and keys give the scores, and the layer differs by rounding.",
    observed="As expected, but XNNPACK computes products in bfloat16 too.",
)
record(
    "llama::custom_sdpa of ExecuTorch",
    "codes beside the content",
    expresses=True,
    **measure(Function, own_operator),
    expected="The codes' queries and keys give the scores, once multiplied by sqrt(8).",
    observed="As expected.",
)
try:
    measure(Function, own_operator_with_mask)
except AssertionError as error:
    assert "Expected attn_mask to be 2 dimensional" in str(error), error
    record(
        "llama::custom_sdpa of ExecuTorch",
        "mask argument",
        expresses=False,
        prevented_by="the mask is one matrix for all heads",
        expected="The mask has two dimensions, so the scores of nine heads are refused.",
        observed="As expected: the export stops with a message.",
    )
