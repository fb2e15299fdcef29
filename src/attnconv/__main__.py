"""The command line of the book's laboratory: `python -m attnconv train --model NAME ...`."""

import sys

if __name__ == "__main__":
    try:
        from companion.cli import main
    except ModuleNotFoundError as error:
        sys.exit(f"python -m attnconv needs {error.name}: pip install 'attnconv[lab]'")
    sys.exit(main())
