"""Fair outlier detection: one score from many detectors that treats protected groups evenly."""

__version__ = "0.1.0"
