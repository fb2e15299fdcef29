"""Chapter 13, on how attention and ResNet18 compare as networks grow."""
