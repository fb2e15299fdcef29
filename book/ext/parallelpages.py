"""Pages are read and written on all cores, which jupyter-book has no option for.

The extensions that it loads need three corrections to read pages with several processes. Two of
them are described in findings/ (sphinx-proof-parallel.sh, sphinx-parallel-sources.sh).
"""

import os

from sphinx_proof.domain import ProofDomain


class MergedProofDomain(ProofDomain):
    """Theorems read by several processes; sphinx-proof itself merges its list of them."""

    def merge_domaindata(self, docnames, otherdata):
        pass


def use_all_cores(app, config):
    app.parallel = os.cpu_count()
    app.add_domain(MergedProofDomain, override=True)
    # it numbers the pages of a numbered table of contents, which this book does not have
    app.extensions["sphinx_multitoc_numbering"].parallel_read_safe = True


def keep_used_modules(app, env):
    """Remove modules of which no page shows a name from the list of sources.

    Sphinx itself removes them only if it reads pages one after the other.
    """
    modules = getattr(env, "_viewcode_modules", {})
    for name, entry in list(modules.items()):
        if entry:
            _, _, pages_by_name, _ = entry
            if not pages_by_name:
                del modules[name]


def setup(app):
    app.connect("config-inited", use_all_cores)
    app.connect("env-check-consistency", keep_used_modules)
    return {"parallel_read_safe": True}
