"""What the runs came to: the claims judged, tables, figures, the README's part."""
