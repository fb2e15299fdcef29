"""Chapter 17, on vision transformers that start as a convolution."""
