#!/usr/bin/env bash
# Subject: rotary position encoding of a transformers model that is cast to bfloat16, here LlamaForCausalLM.
# On: transformers 5.24.0, torch 2.15.0.
# Most expect: from_pretrained(path, dtype=torch.bfloat16) and from_pretrained(path).to(torch.bfloat16) give the same
#   model, as all weights and the dtype are equal.
# Observed: the first keeps the rotary frequencies in float32, the second rounds them to bfloat16, an error that grows
#   with the position: angles are wrong by up to 2.6 radians at token 4000. Going back with .float() does not help, nor
#   does loading the float32 weights again: the frequencies are in no state dict.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

DIM, TOKENS = 128, 4096
sizes = {"hidden_size": DIM, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
original = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=16, max_position_embeddings=TOKENS))
original.save_pretrained(sys.argv[1])


def angles(model):
    """Return cosines and sines, as complex numbers, for each token and frequency, asked for in float64."""
    cos, sin = model.model.rotary_emb(torch.empty(1, dtype=torch.float64), torch.arange(TOKENS)[None])
    return torch.complex(cos, sin)[0, :, : DIM // 2]


def error(model):
    """Return the largest error of an angle at each token, in radians."""
    return (angles(model) / angles(original)).angle().abs().amax(dim=1)


loaded = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
cast = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).to(torch.bfloat16)
states = loaded.state_dict(), cast.state_dict()
assert states[0].keys() == states[1].keys() and all(torch.equal(states[0][name], states[1][name]) for name in states[0])
print(f"frequencies: dtype= {loaded.model.rotary_emb.inv_freq.dtype}, .to() {cast.model.rotary_emb.inv_freq.dtype}")
back = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).to(torch.bfloat16).float()
back.load_state_dict(original.state_dict())
for name, model in {"dtype=": loaded, ".to()": cast, ".to(), .float() and load_state_dict": back}.items():
    wrong = error(model)
    print(f"{name}: largest error of an angle {wrong[40]:.2g} at token 40, {wrong[4000]:.2g} at token 4000")
    assert wrong.max() < 1e-5 if model is loaded else wrong[4000] > 1
PYTHON
"$folder/venv/bin/python" "$folder/observe.py" "$folder/model"
