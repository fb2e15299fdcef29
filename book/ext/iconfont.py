"""A small font with the icons that the theme's pages show, instead of a font with all of them.

The theme's font of icons weighs 157 KB, as much as half of a page. Browsers take an icon from the
small font if it has the icon, and otherwise load the theme's font, as before.
"""

from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

ICONS = {
    "magnifying-glass": 0xF002,
    "download": 0xF019,
    "list": 0xF03A,
    "circle-half-stroke": 0xF042,
    "arrow-up": 0xF062,
    "circle-xmark": 0xF057,
    "circle-check": 0xF058,
    "circle-info": 0xF05A,
    "circle-exclamation": 0xF06A,
    "expand": 0xF065,
    "triangle-exclamation": 0xF071,
    "chevron-down": 0xF078,
    "bars": 0xF0C9,
    "lightbulb": 0xF0EB,
    "bell": 0xF0F3,
    "angle-left": 0xF104,
    "angle-right": 0xF105,
    "angle-down": 0xF107,
    "rocket": 0xF135,
    "file": 0xF15B,
    "sun": 0xF185,
    "moon": 0xF186,
    "file-pdf": 0xF1C1,
    "pencil": 0xF303,
}
STYLE = """@font-face {{
  font-family: "Font Awesome 6 Free";
  font-style: normal;
  font-weight: 900;
  font-display: block;
  src: url(icons.woff) format("woff");
  unicode-range: {codes};
}}
"""


def write_font(app, exception):
    """Write the font and its style sheet beside the theme's."""
    static = Path(app.outdir, "_static")
    whole = static / "vendor/fontawesome/webfonts/fa-solid-900.ttf"
    if exception is not None or not whole.exists():
        return
    font = TTFont(whole)
    subsetter = Subsetter(Options(hinting=False, layout_features=[], flavor="woff"))
    subsetter.populate(unicodes=ICONS.values())
    subsetter.subset(font)
    font.flavor = "woff"
    font.save(static / "icons.woff")
    codes = ", ".join(f"U+{code:X}" for code in ICONS.values())
    (static / "icons.css").write_text(STYLE.format(codes=codes))


def setup(app):
    app.add_css_file("icons.css")
    app.connect("build-finished", write_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
