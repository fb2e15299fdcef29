"""Training runs: their parameters, records and weights, and the selection of records for a page."""
