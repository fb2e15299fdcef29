"""The claims of the paper and of the book, and the rules that judge them."""
