"""Chapter 18, on vision transformers that start as a convolution."""
