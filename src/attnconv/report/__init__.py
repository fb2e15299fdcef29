"""Claims, tables and pages generated from the run records."""
