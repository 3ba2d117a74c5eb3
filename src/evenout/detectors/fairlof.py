"""FairLOF: a local outlier factor that counts distances across groups less, or more (P and Abraham 2020).

With ``D_g`` the share of group g in the training rows, ``Div(x)`` the share of other groups among the k neighbours of x, and T the
rows of highest plain LOF::

    W = 1 + |D_major - share of the major group in T|,   s = +1 if D_major is the larger of these two, else -1
    k-distance of x          *=  max(0.01, 1 - lambda s W D_g(x) Div(x))
    reach of x to a neighbour of another group  *=  max(0.01, 1 - lambda s W D_g(x))

and then as LOF (see `evenout.detectors.neighbours`). If the major group is rare in T, distances shrink, the most for the
rows of large groups, so that their densities rise... 

Equal rows are one location, and its rows may be of several groups. Where ties make only some of them neighbours, no group comes
first: each counts by its share at that location, which is the mean over all ways to break the tie.
"""
