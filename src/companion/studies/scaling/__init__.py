"""Chapter 17, on how attention and ResNet18 compare as networks grow."""
