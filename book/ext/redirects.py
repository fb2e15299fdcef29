"""Keep the addresses of pages that were renamed or replaced.

The setting `redirects` maps each old name to the page that has its content now, both as in
`_toc.yml` (`notebooks/02-old: notebooks/03-new`). At the old address, a small page leads to the new
one, with the anchor that the reader asked for; without JavaScript, it leads to the page's top.
"""

import html
from pathlib import Path

from sphinx.errors import ConfigError

from companion.store import write_file

# The script marks the page as busy until the browser has left it.
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>This page has moved</title>
<link rel="icon" href="data:,">
<noscript><meta http-equiv="refresh" content="0; url={address}"></noscript>
<script>
document.documentElement.setAttribute("aria-busy", "true");
location.replace("{address}" + location.hash);
</script>
</head>
<body>
<main>
<h1>This page has moved</h1>
<p>Its content is now in <a href="{address}">{title}</a>.</p>
</main>
</body>
</html>
"""


def check_redirects(app, env):
    """Raise ConfigError unless each old name is free and each new one is a page."""
    for old, new in app.config.redirects.items():
        if old in env.found_docs:
            raise ConfigError(f"redirects: {old} is still a page; remove it from the setting")
        if new not in env.found_docs:
            raise ConfigError(f"redirects: {old} leads to {new}, which is not a page of the book")


def write_redirects(app, exception):
    """Write a page at each old address."""
    if exception is not None or app.builder.format != "html":
        return
    for old, new in app.config.redirects.items():
        page = PAGE.format(
            address=app.builder.get_relative_uri(old, new),
            title=html.escape(app.env.titles[new].astext()),
        )
        write_file(Path(app.builder.get_outfilename(old)), page.encode())


def setup(app):
    app.add_config_value("redirects", {}, "html")
    app.connect("env-check-consistency", check_redirects)
    app.connect("build-finished", write_redirects)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
