"""Runs: parameters, records, weights and the selection of records for a page."""
