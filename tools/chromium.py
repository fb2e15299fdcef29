"""Find the Chromium that prints the book and tests its pages, and define when a page is ready."""

import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    f"none of {', '.join(BROWSERS)} is on the PATH; on Debian: apt-get install chromium"
    " fonts-dejavu-core"
)
# A page is ready when redirects have been followed, all is loaded, nothing is marked as busy, and
# every widget stands before the script that describes it.
LOADED = """() => {
  const views = [...document.querySelectorAll('script[type$="widget-view+json"]')];
  return document.readyState === "complete"
    && !document.querySelector('meta[http-equiv="refresh" i], [aria-busy="true"]')
    && views.every((view) => view.previousElementSibling?.matches(".widget-subarea:has(> * > *)"));
}"""


def find_chromium() -> str | None:
    """Return the path of the first of `BROWSERS` that is installed, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)
