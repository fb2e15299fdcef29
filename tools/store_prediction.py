"""Store the prediction of chapter 13 in data/prediction.json, once its check holds for both models.

Usage: python tools/store_prediction.py
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from companion.runs.select import Records
from companion.store import write_file
from companion.studies.scaling.measures import (
    COMPARED,
    JUDGEMENT,
    PREDICTION,
    STORED,
    predictions,
    runs_of,
)


def store_predictions(records: Records, path: Path = STORED) -> None:
    """Store the predictions and the names of the runs behind them, as `JUDGEMENT` requires.

    Raises ValueError if either model has no prediction or fails its check, or if the paper tier has
    already been run, and FileExistsError if a prediction is already stored.
    """
    models = {}
    for model, found in predictions(records).items():
        if isinstance(found, str) or not found.holds:
            reason = found if isinstance(found, str) else "its check fails"
            raise ValueError(f"no prediction is made for {model}, so none can be stored: {reason}")
        models[model] = asdict(found)
    if late := records.at("paper").of(*COMPARED):
        raise ValueError(
            f"the paper tier has been run ({late[0].name}); a prediction must be stored before"
        )
    if path.exists():
        raise FileExistsError(f"{path} holds an earlier prediction, which stays as it is")
    runs = [run.name for model in COMPARED for of in runs_of(records, model).values() for run in of]
    content = {"method": PREDICTION, "judgement": JUDGEMENT, "runs": runs, "models": models}
    write_file(path, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    try:
        store_predictions(Records.read())
    except (ValueError, FileExistsError) as error:
        sys.exit(f"error: {error}")
    print(f"written: {STORED}")
