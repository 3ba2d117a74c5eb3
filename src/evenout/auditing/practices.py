"""The public practices that tables follow: what is counted, where that is written, and what it does not establish."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Practice:
    """One practice.

    Parameters
    ----------
    title : str
    counted : tuple of str
        What the columns are, in sentences.
    sources : tuple of str
    limits : tuple of str
        What the table does not establish.
    """

    title: str
    counted: tuple[str, ...]
    sources: tuple[str, ...]
    limits: tuple[str, ...]


_LAW = (
    "It applies no legal rule: whether a rule covers this score, and what follows from a figure, is for counsel to say."
)
_CAUSE = (
    "A difference is no cause: it may come from the score, from the people who are in the file, or from the records."
)

PRACTICES = {
    "hiring": Practice(
        "Rates against the best-off group, as in reviews of hiring",
        (
            "Rate: the share of a group with the favourable outcome. Ratio: that rate over that of the best-off group.",
            "Median rate: the share on the favourable side of the median score of all people, and its ratio likewise.",
            "Flag ratio: the same ratio for flags; where flags are bad, the lowest flag rate over the group's own.",
            "Groups under 2 % of all people are marked, and are never taken as the best-off group. People of unknown "
            "group are counted.",
        ),
        (
            "Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4 D (ratio of selection rates)",
            "New York City, Rules on Automated Employment Decision Tools, 6 RCNY 5-300 to 5-304 (impact ratios of "
            "selection and of scores above the median, by category and crossed; categories under 2 %; unknown counted)",
        ),
        (
            _LAW,
            "The rules named are about selection for something good, in employment; a flag for review is not that.",
            "The best-off group is chosen by its rate: chance alone puts ratios below 1; intervals take it as given.",
            _CAUSE,
        ),
    ),
    "lending": Practice(
        "Rates and scores against a reference group, as in fair-lending reviews",
        (
            "Ratio: the rate of the favourable outcome over that of the reference group (adverse impact ratio), the "
            "best-off one unless another is named. Flag ratio: the flag rate over that of the reference group.",
            "Score difference: mean score less that of the reference group, in standard deviations of all people "
            "(standardised mean difference); above 0 is scored as more outlying.",
            "z: of the two rates, pooled. p: Fisher's exact test, two-sided; corrected by Holm's method by attribute.",
            "Shortfall: how many more people would have had the favourable outcome at the rate of the reference group.",
        ),
        (
            "Interagency Fair Lending Examination Procedures (FFIEC, August 2009): outcomes against a control group",
            "Hall, Cox, Dickerson, Ravi Kannan, Kulkarni and Schmidt, A United States Fair Lending Perspective on "
            "Machine Learning, Frontiers in Artificial Intelligence 4 (2021): adverse impact ratio, standardised mean "
            "difference",
            "Morris and Dunleavy (eds.), Adverse Impact Analysis (2017): Fisher's exact test, z, shortfall",
        ),
        (
            _LAW,
            "Nobody here is matched on creditworthiness or on anything else; a table by strata compares people alike.",
            "A small p-value says that chance is a poor explanation, not that the difference is large, nor its reason.",
            _CAUSE,
        ),
    ),
    "strata": Practice(
        "Rates among people alike in what may justify a difference",
        (
            "Ratio: of the favourable outcome to the reference group's, within strata, pooled by Mantel and Haenszel; "
            "beside it the ratio of all, the ratio of odds, and their test without continuity correction.",
            "Disparity: the group's share among those with the unfavourable outcome less its share among the others, "
            "within strata, averaged by their size (conditional demographic disparity).",
            "Strata without people of both groups, or with one outcome alone, have no say in what they cannot tell.",
        ),
        (
            "Mantel and Haenszel, Journal of the National Cancer Institute 22 (1959); intervals: Greenland and Robins, "
            "Biometrics 41 (1985), and Robins, Breslow and Greenland, Biometrics 42 (1986)",
            "Wachter, Mittelstadt and Russell, Why Fairness Cannot Be Automated, Computer Law and Security Review 41 "
            "(2021): conditional demographic disparity",
        ),
        (
            _LAW,
            "That a column may justify a difference is a choice. It may itself come from unequal treatment.",
            "Differences that point in opposite ways in two strata cancel out in one pooled figure: read the rates.",
            _CAUSE,
        ),
    ),
}
