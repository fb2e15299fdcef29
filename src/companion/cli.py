"""The command-line interface, used as in `python -m attnconv train --model NAME ...`.

The options of `train` are the fields of `runs.parameters.RunParameters`.
"""

import argparse
import sys

from .runs.parameters import RunParameters


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status, which is 2 for invalid values or files."""
    given = _parser().parse_args(arguments)
    try:
        return COMMANDS[given.command](given)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m attnconv", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    text = "train one model, or continue an interrupted run"
    train = commands.add_parser("train", help=text, allow_abbrev=False)
    for name, field in RunParameters.model_fields.items():
        default = "the recipe's" if field.is_required() else repr(field.default)
        # accepts both _, as in the notebook, and -
        names = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
        text = f"{field.description} (default: {default})"
        train.add_argument(*names, metavar="VALUE", default=argparse.SUPPRESS, help=text)
    text = "find or download a data set, check it, and keep its decoded copy"
    data = commands.add_parser("data", help=text)
    data.add_argument("--dataset", default="cifar10")
    text = "default: the folder in ATTNCONV_DATA, or else the repository's data"
    data.add_argument("--root", help=text)
    runs = commands.add_parser("runs", help="print a table of the run records")
    text = "write the README's table and picture from the run records"
    readme = commands.add_parser("readme", help=text)
    text = "compare a trained CNN with its attention form on all test images and store the result"
    convert = commands.add_parser("convert", help=text)
    convert.add_argument("--model", default="cnn", help="cnn (the default) or resnet18")
    text = "replace the attention of a trained network and store the test accuracy that is left"
    ablate = commands.add_parser("ablate", help=text)
    ablate.add_argument("--model", default="sa-quadratic")
    ablate.add_argument("--seed", type=int, default=0)
    ablate.add_argument("--images", type=int, default=10_000, help="number of test images")
    for command in (convert, ablate):
        command.add_argument("--tier", default="small")
        command.add_argument("--data_root", help="see --root of data")
    text = "list the claims of the book, or judge some again and compare the recorded verdicts"
    check = commands.add_parser("check", help=text)
    check.add_argument("claims", nargs="*", metavar="CLAIM", help="default: list the claims")
    check.add_argument("--all", action="store_true", help="judge all claims")
    text = "judge all claims and record the verdicts in data/claims.json"
    check.add_argument("--write", action="store_true", help=text)
    for command in (runs, readme, convert, ablate, check):
        command.add_argument("--runs", default="", help="default: the repository's data/runs")
    return parser


def _train(given: argparse.Namespace) -> int:
    texts = {name: text for name, text in vars(given).items() if name != "command"}
    parameters = RunParameters.from_texts(texts)
    # imported only after the parameters have been checked, because this takes seconds
    from .training.loop import train
    from .training.machine import Interrupted

    try:
        run = train(parameters)
    except Interrupted as interruption:
        print(interruption, file=sys.stderr)
        return 128 + interruption.signal
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if run.record is None:  # only the first of several processes reports
        return 0
    info = run.record.info
    print(
        f"{parameters.name}: {info.epochs_done} epochs, test accuracy"
        f" {info.final_test_accuracy:.4f} (best {info.best_test_accuracy:.4f}),"
        f" {info.wall_seconds:.0f} s; record in {run.record.folder}"
    )
    return 0


def _data(given: argparse.Namespace) -> int:
    from .data import load_dataset

    dataset = load_dataset(given.dataset, given.root)
    print(
        f"{dataset.name}: {len(dataset.train_labels)} + {len(dataset.test_labels)} images,"
        f" fingerprint {dataset.fingerprint}"
    )
    return 0


def _runs(given: argparse.Namespace) -> int:
    from .runs.record import find_runs
    from .tables import records_table

    records, problems = find_runs(given.runs)
    print(records_table(records, "runs") if records else "no run records")
    for problem in problems.values():
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _readme(given: argparse.Namespace) -> int:
    from .readme import update_picture, update_readme
    from .runs.select import Records

    changed = update_readme(Records.read(given.runs))
    update_picture()
    print("README.md: " + ("written anew" if changed else "up to date"))
    return 0


def _convert(given: argparse.Namespace) -> int:
    from .data import load_dataset
    from .runs.weights import load_model
    from .studies.conversion import CONVERSION_FILE, compare

    model = load_model(given.model, given.tier, runs=given.runs)
    folder = model.record.folder
    found = compare(model, folder, load_dataset("cifar10", given.data_root))
    for name, ours in {"shifts": found.attention, "softmax at every query": found.softmax}.items():
        print(
            f"{folder.name}, {name}: {ours.same_class} of {found.test_images} test images in the"
            f" same class, logits differ by at most {ours.largest_gap:.1e} of the largest logit;"
            f" {ours.seconds:.0f} s as attention, {found.cnn.seconds:.0f} s as CNN"
        )
    print(f"written to {folder / CONVERSION_FILE}")
    return 0


def _ablate(given: argparse.Namespace) -> int:
    from .data import load_dataset
    from .runs.weights import load_model
    from .studies.ablation import ABLATION_FILE, command_of, measure

    model = load_model(given.model, given.tier, given.seed, given.runs)
    folder = model.record.folder
    dataset = load_dataset("cifar10", given.data_root)
    command = f"python -m attnconv {command_of(model.record)} --images {given.images}"
    found = measure(model, folder, dataset, given.images, command)
    print(f"{folder.name}, {found.test_images} test images, unchanged: {found.unchanged:.4f}")
    for name in found.replacements:
        print(f"all layers replaced by {name}: {found.of(name)[-1]:.4f}")
    print(f"written to {folder / ABLATION_FILE}")
    return 0


def _check(given: argparse.Namespace) -> int:
    from .claims import registry
    from .runs.select import Records

    if given.write and given.claims:
        raise ValueError("--write records all verdicts; leave out the names of claims")
    records = Records.read(given.runs)
    if given.write:
        registry.write_recorded(records)
        print(f"{registry.CLAIMS_FILE}: verdicts recorded")
    elif given.all or given.claims:
        return 0 if registry.judge_and_print([] if given.all else given.claims, records) else 1
    else:
        print("\n".join(f"{c.name:34}  {c.text} ({c.place})" for c in registry.all_claims()))
    return 0


#: The commands by name.
COMMANDS = {
    "train": _train,
    "data": _data,
    "runs": _runs,
    "readme": _readme,
    "convert": _convert,
    "ablate": _ablate,
    "check": _check,
}
