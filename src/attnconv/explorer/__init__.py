"""The explorer: attention and convolution computed live, in a page of the book (`page.py`) or in a notebook (`widget.py`)."""
