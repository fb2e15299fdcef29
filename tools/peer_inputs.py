"""Run other projects' test inputs through attnconv, and compare the outputs.

- ONNX's node tests for the operator `Attention` through equations (3) and (4)
  (`attnconv.theory.attention`).
- Torch's samples for convolutions (its `OpInfo`s) through `attnconv.conv_to_attention`.

Prints how many cases agree, and how many are outside of what attnconv covers, by reason. Exits with
1 if a case differs. Needs `expecttest`, which torch's samples import.
"""

import math
import sys
import warnings
from collections import Counter

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx.backend.test.case.node import collect_testcases

from attnconv import conv_to_attention
from attnconv.theory.attention import attention_scores, multi_head_self_attention

AGREES = "agrees"
#: Inputs and attributes of `Attention` that equations (3) and (4) do not have.
NOT_IN_THE_EQUATIONS = {
    "past_key": "keys and values of earlier calls",
    "nonpad_kv_seqlen": "a number of keys per example",
    "softcap": "scores with an upper limit (softcap)",
    "left_window_size": "a window of keys",
}
CONVOLUTIONS = {
    "nn.functional.conv1d": torch.nn.Conv1d,
    "nn.functional.conv2d": torch.nn.Conv2d,
    "nn.functional.conv3d": torch.nn.Conv3d,
    "nn.functional.conv_transpose1d": torch.nn.ConvTranspose1d,
    "nn.functional.conv_transpose2d": torch.nn.ConvTranspose2d,
    "nn.functional.conv_transpose3d": torch.nn.ConvTranspose3d,
}


def onnx_outcomes():
    """Yield the name and the outcome of each of ONNX's node tests for `Attention`."""
    np.random.seed(0)  # noqa: NPY002 (the tests draw from it)
    for case in collect_testcases("Attention"):
        (node, *others) = case.model.graph.node
        if others:
            continue  # the same case, as the operators that `Attention` is defined by
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        inputs, outputs = case.data_sets[0]
        given = [name for name in node.input if name]
        arrays = dict(zip(given, map(_tensor, inputs), strict=True))
        yield case.name, _attention_outcome(arrays, attributes, outputs[0])


def _attention_outcome(arrays, attributes, wanted):
    """Return what happened to one case: `AGREES`, how it differs, or why it is outside."""
    for name, reason in NOT_IN_THE_EQUATIONS.items():
        if name in arrays or attributes.get(name, -1) != -1:
            return reason
    heads = {"Q": attributes.get("q_num_heads"), "K": attributes.get("kv_num_heads")}
    heads["V"] = heads["K"]
    q, k, v = (_by_head(arrays[name], heads[name]) for name in "QKV")
    mask = _additive_mask(q, k, arrays.get("attn_mask"), attributes.get("is_causal"))
    if (mask == -math.inf).all(dim=-1).any():
        return "a query whose keys are all blocked"
    output = equation_4(q, k, v, attributes.get("scale", q.shape[-1] ** -0.5), mask)
    if wanted.ndim == 4:
        output = output.unflatten(-1, (q.shape[1], -1)).transpose(1, 2)
    return _compared(output, _tensor(wanted), wanted.dtype)


def equation_4(q, k, v, scale, mask):
    """Return the attention of queries, keys and values `(B, N_h, T, D)` by equations (3) and (4).

    They are put side by side in the channels of X, from which the weights select them. Fewer keys
    than queries, or fewer queries than keys, are filled up with tokens that are blocked or left
    out. Several heads may have the same keys and values. The result is `(B, T, N_h * D_h)`.
    """
    tokens = max(q.shape[2], k.shape[2])
    parts = [each.transpose(1, 2).flatten(2) for each in (q, k, v)]
    X = torch.cat([F.pad(each, (0, 0, 0, tokens - each.shape[1])) for each in parts], dim=-1)
    columns = torch.eye(X.shape[-1], dtype=X.dtype).split([each.shape[-1] for each in parts], dim=1)
    W_qry, W_key, W_val = (
        of.unflatten(1, (each.shape[1], -1)).transpose(0, 1).repeat_interleave(times, dim=0)
        for of, each in zip(columns, (q, k, v), strict=True)
        for times in [q.shape[1] // each.shape[1]]
    )
    A = attention_scores(X.unsqueeze(1), W_qry * scale, W_key)
    A[..., : q.shape[2], : k.shape[2]] += mask
    A[..., k.shape[2] :] = -math.inf
    W_out = torch.eye(q.shape[1] * v.shape[-1], dtype=X.dtype)
    return multi_head_self_attention(A, X, W_val, W_out)[:, : q.shape[2]]


def _by_head(x, heads):
    """Return queries, keys or values, which may be `(B, T, N_h * D)`, as `(B, N_h, T, D)`."""
    return x if x.ndim == 4 else x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _additive_mask(q, k, mask, is_causal):
    """Return what is added to the scores."""
    added = torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype)
    if is_causal:
        added = added.masked_fill(~torch.ones_like(added, dtype=torch.bool).tril(), -math.inf)
    if mask is None:
        return added
    if mask.dtype == torch.bool:
        return torch.where(mask, added, -math.inf)
    return added + mask


def _tensor(array):
    """Return an array as a tensor; floating-point numbers become float64."""
    if array.dtype.kind in "biu":
        return torch.from_numpy(array)
    return torch.from_numpy(array.astype(np.float64))


def _compared(found, wanted, dtype):
    """Return `AGREES`, or by how much the results differ in terms of the peer's dtype."""
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(str(dtype).removeprefix("torch."), 1e-5)
    gap = (found - wanted).abs().max().item() if found.shape == wanted.shape else math.inf
    close = gap <= tolerance * max(1, wanted.abs().max().item())
    return AGREES if close else f"differs by {gap:.2g}"


def torch_outcomes():
    """Yield the name and the outcome of each of torch's samples for convolutions."""
    # not at the top: the import disables flags of torch in the whole process
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    for info in op_db:
        if info.name not in CONVOLUTIONS:
            continue
        for dtype in (torch.float32, torch.float64):
            for number, sample in enumerate(info.sample_inputs("cpu", dtype)):
                name = f"{info.name}, {str(dtype).removeprefix('torch.')}, sample {number}"
                yield name, _convolution_outcome(info, sample)


@torch.no_grad()
def _convolution_outcome(info, sample):
    """Return what happened to one sample: `AGREES`, how it differs, or why it is outside."""
    weight, bias = sample.args
    groups = sample.kwargs.get("groups", 1)
    kind = CONVOLUTIONS[info.name]
    channels = [weight.shape[0], weight.shape[1] * groups]  # in and out of a transposed one
    if "transpose" not in info.name:
        channels.reverse()
    conv = kind(
        *channels, weight.shape[2:], **sample.kwargs, bias=bias is not None, dtype=weight.dtype
    )
    conv.weight.copy_(weight)
    if bias is not None:
        conv.bias.copy_(bias)
    if weight.ndim == 5:
        return "three dimensions"
    wanted = info(sample.input, *sample.args, **sample.kwargs)
    return _compared(conv_to_attention(conv)(sample.input), wanted, wanted.dtype)


def main():
    """Print the outcomes of both, and return 1 if a case differs."""
    differs = False
    for title, outcomes in {
        "ONNX's node tests of Attention": dict(onnx_outcomes()),
        "torch's samples of convolutions": dict(torch_outcomes()),
    }.items():
        count = Counter(outcomes.values())
        print(f"{title}: {len(outcomes)} cases, {count.pop(AGREES, 0)} agree")
        for name, outcome in outcomes.items():
            if outcome.startswith("differs"):
                differs = True
                del count[outcome]
                print(f"  {name} {outcome}")
        for reason, cases in count.most_common():
            print(f"  {cases} outside: {reason}")
    return int(differs)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of the peers, which make all their tests
    sys.exit(main())
