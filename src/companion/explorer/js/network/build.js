/** Trained networks in the page: forward passes of one image. Their weights and architectures are what `networks.py` gives. */
import { selfAttentionNetwork } from "./self-attention.js";
import { convolutionalNetwork } from "./cnn.js";

/** A network from its weights: `forward(image, alpha)` takes a normalised image, `(size, size, 3)`, and gives `{logits, maps}`.
 *  Networks of self-attention give each layer's maps, `(heads, T, T)`: query, then key. A CNN gives none; with an `alpha`, all of
 *  its convolutions are computed as attention with heads so sharp, exactly at `HARD_ALPHA`. */
export function build(tensors, architecture) {
  return { forward: (architecture.steps ? convolutionalNetwork : selfAttentionNetwork)(tensors, architecture) };
}
