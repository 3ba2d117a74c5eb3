"""Parity among rows of known outcome: their labels say that they are outliers, or that they are not.

A block of groups may be restricted to known outliers or to known inliers (`evenout.core.membership.Block.among`). Each
notion is parity over such blocks: form, unseen bias, errors and the test for "no gap" are those of
`evenout.core.parity`. Biases are in units of the variance over all rows, labelled or not.
"""

from evenout.core.parity import DemographicParity


class EqualOpportunity(DemographicParity):
    """Known outliers of all groups score alike: none is overlooked for the group."""

    name = "equal_opportunity"
    among = ("outliers",)


class EqualFalseAlarms(DemographicParity):
    """Known inliers of all groups score alike: none is flagged wrongly for the group."""

    name = "equal_false_alarms"
    among = ("inliers",)


class EqualizedOdds(DemographicParity):
    """Both: known outliers alike, and known inliers alike; the two count the same."""

    name = "equalized_odds"
    among = ("outliers", "inliers")
