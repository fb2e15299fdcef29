"""One function per table of the paper, and those beyond it: published beside measured, each with
its source.

Numbers are computed or read from run records; `-` stands for what does not exist, a word for what
has not been run. `attnconv.tables` is their name for others.
"""

from .accuracies import (
    Accuracy,
    cost_in_table,
    quick_results,
    small_table,
    summary,
    table_1,
    table_4,
)
from .encodings import table_3
from .freed import arms_table, growth_table
from .recipes import pilot_table, table_2, tier_recipe
from .records import lemma_1_table, model_cards, pruning_table, records_table
from .table import Table
