"""Chapter 15, on whether the heads of a converted CNN stay on the grid."""
