"""Claims and the rules that judge them, and the tables in the book and its README."""
