"""Run records: written and read, chosen for a page, and what is measured of their heads."""
