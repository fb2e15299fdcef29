"""One file or folder for each question that the book asks beyond the paper's figures and tables."""
