"""Code that tests share. No test imports another."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
HTML = ROOT / "_build" / "html"
