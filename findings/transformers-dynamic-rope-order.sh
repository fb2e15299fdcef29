#!/usr/bin/env bash
# Subject: transformers models with rope_type "dynamic" (dynamic NTK scaling), here LlamaForCausalLM.
# On: transformers 5.24.0, torch 2.15.0.
# Most expect: in evaluation mode and without a cache, logits depend on the tokens alone: frequencies are scaled for the
#   length of the sequence at hand.
# Observed: they are scaled for the longest sequence since the last one that was shorter than
#   max_position_embeddings. The same prompt gets other logits after a longer one, and its first logits again after a
#   short one in between.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from transformers import LlamaConfig, LlamaForCausalLM

LIMIT = 64
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
torch.manual_seed(0)
config = LlamaConfig(
    **sizes,
    vocab_size=100,
    max_position_embeddings=LIMIT,
    initializer_range=0.2,
    rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
)
model = LlamaForCausalLM(config).eval()
tokens = torch.randint(0, 100, (1, 4 * LIMIT))


@torch.no_grad()
def logits(length):
    return model(tokens[:, :length], use_cache=False).logits


def gap(result):
    return ((result - first).norm() / first.norm()).item()


first = logits(100)
again = gap(logits(100))
logits(256)
longer = gap(logits(100))
logits(10)
shorter = gap(logits(100))
print(f"100 tokens with a limit of {LIMIT}, relative gap to the first logits: called again {again},")
print(f"  after 256 tokens {longer:.2g}, after 10 tokens {shorter}")
assert again == 0 and longer > 0.01 and shorter == 0
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
