"""Models of other libraries to try, and the record of what was found.

A record has the date, the versions of the libraries and a row for each model. It is written after
each model, and rows that it already has are kept unless --again is given or their library, or
torch, has another version.
"""

import argparse
import datetime
import importlib.metadata
import json
import re
import traceback
from pathlib import Path

import attnconv

# words for sizes in names, in ascending order; a name without one is of middle size
SIZES = [
    "atto",
    "femto",
    "pico",
    "nano",
    "xxtiny",
    "xxsmall",
    "xxs",
    "xs",
    "wee",
    "ti",
    "tiny",
    "mini",
    "little",
    "small",
    "s",
    "-",
    "betwixt",
    "medium",
    "mediumd",
    "m",
    "plus",
    "base",
    "b",
    "large",
    "l",
    "xl",
    "xlarge",
    "so150m",
    "so150m2",
    "so400m",
    "huge",
    "h",
    "giant",
    "g",
    "gigantic",
    "enormous",
]
SIZE = re.compile(rf"(?<![a-z])({'|'.join(SIZES)})(?![a-z])|\d+")


def family(name):
    """Return a model's name without what states its size."""
    return re.sub(r"_+", "_", SIZE.sub("", name)).strip("_")


def size(name):
    """Return a key by which the models of a family are sorted by size, as far as names tell."""
    stated = [match[0] for match in SIZE.finditer(name)]
    words = [SIZES.index(each) for each in stated if not each.isdigit()]
    numbers = [int(each) for each in stated if each.isdigit()]
    return max(words, default=SIZES.index("-")), sorted(numbers)[-1:], numbers, name


def smallest_of_each_family(files):
    """Return the name of the smallest model of each family in these files of timm.models.

    A family is the models of a file whose names differ in sizes only.
    """
    import timm

    families = {}
    for file in files:
        for name in timm.list_models(module=file):
            families.setdefault((file, family(name)), []).append(name)
    return [min(names, key=size) for names in families.values()]


def is_refusal(error):
    """Return whether attnconv itself raised an error of a type that it documents."""
    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    ours = Path(attnconv.__file__).parent in raised_in.parents
    return ours and type(error) in (TypeError, ValueError)


def rows_kept(record, versions):
    """Return a record's rows of each library, without those of other versions than the given ones.

    Another version of torch changes the models of all libraries.
    """
    before = record.get("versions", {})
    same_torch = before.get("torch") == versions.get("torch")
    return {
        library: record["models"][library] if same_torch and before.get(library) == version else {}
        for library, version in versions.items()
    }


def write_record(path, libraries, attempt, description):
    """Write what `attempt` returns for the models of each library, as the command line asks.

    `libraries` maps the name of a library to a function that yields the name of a model, a function
    that builds it and the side of its images; `attempt` takes the latter two, and returns None if
    there is no such model.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    versions = {name: importlib.metadata.version(name) for name in libraries}
    kept = rows_kept(json.loads(path.read_text()) if path.exists() else {}, versions)
    date = datetime.date.today().isoformat()
    record = {"models": kept, "date": date, "versions": versions}
    for library, models in libraries.items():
        rows = kept[library]
        for name, build, side in models():
            if options.only not in f"{library} {name}" or (name in rows and not options.again):
                continue
            row = attempt(build, side)
            if row is None:
                continue
            rows[name] = row
            print(library, name, row, flush=True)
            path.write_text(json.dumps(record, indent=1) + "\n")
