"""Data to try fairness on: the paper's eight sets, credit, and simulations whose truth is known.

Everything is bundled: no network is needed and nothing is written to disk.
"""

from evenout.datasets._bundled import list_datasets, load_dataset
from evenout.datasets._dataset import Dataset, sample_groups
from evenout.datasets._scenarios import list_scenarios, make_biased_outliers

__all__ = ["Dataset", "list_datasets", "list_scenarios", "load_dataset", "make_biased_outliers", "sample_groups"]
