"""Training: the loop, and beside it what it needs: optimizer, checkpoints, processes, lineage,
records."""
