"""The book's laboratory: models and tiers, data, runs, training, figures, claims and studies."""
