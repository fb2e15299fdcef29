"""Run the package's unit tests with the oldest and the newest allowed versions of what it needs.

Usage: uvx nox -f tools/noxfile.py [--session "unit-3.12(oldest)"]

Needs uv, which finds or downloads each version of Python; `make test` uses the locked versions.
"""

import nox

nox.options.default_venv_backend = "uv"
nox.options.envdir = "../_build/nox"
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}


@nox.session(python=["3.11", "3.12"])
@nox.parametrize("versions", list(RESOLUTIONS), ids=list(RESOLUTIONS))
def unit(session, versions):
    session.chdir("..")  # nox starts in the folder of this file
    resolution = RESOLUTIONS[versions]
    extras = [part for extra in ("lab", "book", "test") for part in ("--extra", extra)]
    session.install("--resolution", resolution, "-r", "pyproject.toml", *extras)
    session.install("--no-deps", "-e", ".")
    session.run("python", "-m", "pytest", "-q", "-n", "2", "tests/attnconv", *session.posargs)
