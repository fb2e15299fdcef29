"""Find what is hard to read, to hit or to see whole on a page that is as wide as a phone."""

from pathlib import Path

SCRIPT = Path(__file__).with_suffix(".js").read_text()
LIMITS = {"smallestText": 12, "smallestTarget": 32}  # pixels


def hard_on_a_phone(page):
    """Return a text for each text or target that is too small and each picture that is cut."""
    return page.evaluate(SCRIPT, LIMITS)
