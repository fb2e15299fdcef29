"""The sidebar's titles, found once instead of once for each page.

Sphinx copies the contents of all pages, with their sections and public names, for the sidebar of
each page and each source file, and then drops all but the titles. That is half of the time of
rendering. This extension reduces the contents to titles once and restores a page's own contents on
that page. A list of pages inside a page would lose its sections; this book has none.
"""

from docutils import nodes
from sphinx import addnodes
from sphinx.environment.adapters.toctree import document_toc


def keep_titles(app, env):
    """Reduce the contents of each page to its title and subpages, as Sphinx's `titles_only`."""
    env.own_contents = getattr(env, "own_contents", {})
    for name, contents in env.tocs.items():
        if contents.next_node(is_section) is None:  # reduced by an earlier build, or without any
            continue
        env.own_contents[name] = contents
        env.tocs[name] = titles = contents.deepcopy()
        for entry in titles:
            subpages = list(entry.findall(addnodes.toctree))
            del entry[1:]
            if subpages:
                entry += nodes.bullet_list("", *subpages)


def is_section(node):
    return isinstance(node, nodes.reference) and node["anchorname"]


def restore_contents(app, name, template, context, doctree):
    """Show a page the list of its own sections, which `keep_titles` has set aside."""
    env = app.env
    if name in env.own_contents and name in env.tocs:
        titles = env.tocs[name]
        env.tocs[name] = env.own_contents[name]
        contents = document_toc(env, name, app.tags)
        env.tocs[name] = titles
        context["toc"] = app.builder.render_partial(contents)["fragment"]


def setup(app):
    app.connect("env-check-consistency", keep_titles)
    app.connect("html-page-context", restore_contents)
    return {"parallel_read_safe": True}
