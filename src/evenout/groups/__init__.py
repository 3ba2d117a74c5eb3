"""Protected columns, strata, labels, clusters and weights: read once, and made into memberships."""
