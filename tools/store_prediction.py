"""Store the prediction of chapter 13 in data/prediction.json, once its check holds for both models.

Usage: python tools/store_prediction.py
"""

import sys

from companion.runs.select import Records
from companion.studies.scaling.measures import STORED, store_predictions

if __name__ == "__main__":
    try:
        store_predictions(Records.read())
    except (ValueError, FileExistsError) as error:
        sys.exit(f"error: {error}")
    print(f"written: {STORED}")
