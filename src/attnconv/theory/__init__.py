"""Sections 2 and 3 and appendices B and D of the paper, with torch alone.

To be read in this order: `grid`, `attention`, `encodings`, `layers`, `shifts`, `construction`,
`expressivity`.
"""
