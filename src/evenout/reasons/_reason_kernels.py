"""Compiled walks over mixtures of two rows: distances to a crowd, and leaves of trees."""

from typing import Any

import numpy as np

from evenout.core.parallel import compiled
from evenout.core.types import AnyArray, BoolArray, Float32Array, FloatArray, IntArray
from evenout.detectors.neighbours import GUARD

BLOCK = 64
NEAR = 1e-9  # beside their size, what makes two points one
LEAST = 1e-5  # a squared distance so small, beside the squared way of a row, has lost digits on that way


@compiled()
def true_square(point: FloatArray, other: FloatArray, grid: float) -> Any:
    """The squared distance of a point, its coordinates rounded to a grid if there is one; 0 if rounding is all."""
    total, apart = 0.0, 0
    for f in range(len(point)):
        value = np.rint(point[f] / grid) * grid if grid > 0.0 else point[f]
        total += (value - other[f]) ** 2
        apart += abs(value - other[f]) > NEAR * (1.0 + abs(value))
    return total if apart > 0 else 0.0


@compiled()
def offer(squares: FloatArray, first: int, skip: int, best: FloatArray, ids: IntArray) -> None:
    """Enter the squared distances of the places from ``first`` on, but ``skip``, into a list of the lowest."""
    end = len(best) - 1
    for c in range(len(squares)):
        if squares[c] >= best[end] or first + c == skip:
            continue
        place = end
        while place > 0 and best[place - 1] > squares[c]:
            best[place], ids[place] = best[place - 1], ids[place - 1]
            place -= 1
        best[place], ids[place] = squares[c], first + c


@compiled()
def move_on(
    squares: FloatArray, constant: float, factor: float, product: FloatArray, skip: int, best: FloatArray, ids: IntArray
) -> None:
    """Add ``constant + factor * product`` to squared distances, and list the lowest, ascending, with their places.

    ``ids`` comes with the places of the list before. Their new distances bound the new list, so that most blocks are
    seen to hold nothing of it, without a branch for each distance.
    """
    bound = 0.0
    for place in range(len(ids)):
        c = ids[place]
        bound = max(bound, squares[c] + (constant + factor * product[c]) if c >= 0 else np.inf)
    best[:] = np.inf
    ids[:] = -1
    for c in range(len(squares)):
        squares[c] += constant + factor * product[c]
    for first in range(0, len(squares), BLOCK):
        block, hits = squares[first : first + BLOCK], 0
        for c in range(len(block)):
            hits += block[c] <= bound
        if hits > 0:
            offer(block, first, skip, best, ids)
            bound = min(bound, best[-1])


@compiled()
def list_slots(
    point: FloatArray, grid: float, least: float, crowd: FloatArray, counts: IntArray, own: int, best: FloatArray,
    ids: IntArray, slot: FloatArray, spot: IntArray,
) -> Any:  # fmt: skip
    """Expand the nearest locations to neighbouring rows, their distances and locations; how many there are.

    One copy of the row itself, at location ``own``, is left out, and one of a row that equals the point: so does the
    score of a row that is a training row. Squared distances below ``least`` are computed anew, free of the rounding of
    many steps.
    """
    filled = 0
    for place in range(len(best)):
        c = ids[place]
        if c < 0 or filled == len(slot):
            break
        square = best[place] if best[place] > least else true_square(point, crowd[c], grid)
        distance = np.sqrt(square)
        for _ in range(counts[c] - (1 if square == 0.0 or c == own else 0)):
            if filled < len(slot):
                slot[filled], spot[filled] = distance, c
                filled += 1
    return filled


@compiled()
def add_by_player(change: FloatArray, player: IntArray, each: FloatArray, out: FloatArray) -> None:
    """Sum what each feature adds into ``out`` (p, D), where column f adds ``change[f] * each[f]``."""
    out[:] = 0.0
    for f in range(len(change)):
        added, row = out[player[f]], each[f]
        if change[f] != 0.0:
            for c in range(len(row)):
                added[c] += change[f] * row[c]


@compiled()
def walk_crowd(
    start: FloatArray, change: FloatArray, player: IntArray, each: FloatArray, product: FloatArray, own: IntArray,
    steps: IntArray, p: int, crowd: FloatArray, counts: IntArray, k_distance: FloatArray, density: FloatArray,
    lof: IntArray, knn: IntArray, k_max: int, grid: float, out: FloatArray,
) -> None:  # fmt: skip
    """Write local outlier factors and k-distances at every mixture of each row, ``out[i, l]``.

    A point that moves by u is at the squared distance ``|z - o|^2 + |u|^2 + 2 u'z - 2 u'o`` from o.

    ``start`` (m, D) are the typical rows, ``change`` (m, d) is what the rows have more than these, by column, and
    ``player`` (d,) the feature that a column belongs to, of p. ``each`` (d, D) is what a unit of a column adds to the
    coordinates, ``product`` (d, M) its product with the crowd (M, D). ``own`` (m,) is the location that the row itself
    is among the crowd, or -1. Coordinates are multiples of ``grid``; 0: they are as they are.
    """
    D, M = crowd.shape[1], len(crowd)
    square, point, taken, still = np.empty(M), np.empty(D), np.empty(p, np.bool_), np.zeros(M)
    moves, along = np.empty((p, D)), np.empty((p, M))
    best, ids = np.empty(k_max + 1), np.empty(k_max + 1, np.intp)
    slot, spot = np.empty(k_max), np.empty(k_max, np.intp)
    for i in range(len(change)):
        add_by_player(change[i], player, each, moves)
        add_by_player(change[i], player, product, along)
        point[:], taken[:], ids[:], least = start[i], False, -1, 0.0
        for j in range(p):
            for f in range(D):
                least += LEAST * p * moves[j, f] ** 2  # p times the sum of squares bounds the square of a sum
        for c in range(M):
            square[c] = 0.0
            for f in range(D):
                square[c] += (point[f] - crowd[c, f]) ** 2
        skip = own[i] if own[i] >= 0 and counts[own[i]] == 1 else -1
        move_on(square, 0.0, 0.0, still, skip, best, ids)
        filled = list_slots(point, grid, least, crowd, counts, own[i], best, ids, slot, spot)
        rate_slots(slot, spot, filled, k_distance, density, lof, knn, out[i, 0])
        for step, j in enumerate(steps):
            sign, constant = -1.0 if taken[j] else 1.0, 0.0
            taken[j] = not taken[j]
            for f in range(D):
                u = sign * moves[j, f]
                constant += u * (u + 2.0 * point[f])
                point[f] += u
            move_on(square, constant, -2.0 * sign, along[j], skip, best, ids)
            filled = list_slots(point, grid, least, crowd, counts, own[i], best, ids, slot, spot)
            rate_slots(slot, spot, filled, k_distance, density, lof, knn, out[i, step + 1])


@compiled()
def rate_slots(
    slot: FloatArray, spot: IntArray, filled: int, k_distance: FloatArray, density: FloatArray, lof: IntArray,
    knn: IntArray, out: FloatArray,
) -> None:  # fmt: skip
    """Write the factors and k-distances of one point, from the distances and places of its neighbours."""
    for c in range(len(lof)):
        reach, around, k = 0.0, 0.0, min(lof[c], filled)
        for j in range(k):
            reach += max(slot[j], k_distance[spot[j], c])
            around += density[spot[j], c]
        out[c] = around / k * (reach / k + GUARD)
    for c in range(len(knn)):
        out[len(lof) + c] = slot[min(knn[c], filled) - 1]


@compiled()
def walk_trees(
    rows: Float32Array, typical: Float32Array, player: IntArray, taken: BoolArray, feature: AnyArray,
    threshold: FloatArray, child: AnyArray, length: FloatArray, root: IntArray, depth: int, sizes: IntArray,
    out: FloatArray,
) -> None:  # fmt: skip
    """Write path lengths of every mixture of each row and its typical row, over the first ``sizes[c]`` trees.

    They go to ``out[i, l, c]``. All mixtures go down a tree together, in one list that is parted where row and typical
    row part. ``taken`` is of shape (p, L), ``player[f]`` the feature of the table that column f belongs to.
    """
    L = taken.shape[1]
    total, order = np.empty(L), np.empty(L, np.int32)
    nodes, begins, ends = np.empty(depth + 2, np.intp), np.empty(depth + 2, np.intp), np.empty(depth + 2, np.intp)
    for i in range(len(rows)):
        total[:] = 0.0
        for t in range(len(root)):
            for m in range(L):
                order[m] = m
            nodes[0], begins[0], ends[0], waiting = root[t], 0, L, 1
            while waiting > 0:
                waiting -= 1
                v, begin, end = np.intp(nodes[waiting]), begins[waiting], ends[waiting]
                while child[v, 0] != v:
                    f = feature[v]
                    mine, usual = np.intp(rows[i, f] > threshold[v]), np.intp(typical[i, f] > threshold[v])
                    if mine != usual:
                        member, front = taken[player[f]], begin
                        for place in range(begin, end):  # exchanged whether needed or not: no branch to guess
                            m, moved = order[place], order[front]
                            order[front], order[place] = m, moved
                            front += member[m]
                        if front == begin:
                            v = np.intp(child[v, usual])
                            continue
                        if front < end:
                            nodes[waiting], begins[waiting], ends[waiting] = child[v, usual], front, end
                            waiting += 1
                            end = front
                    v = np.intp(child[v, mine])
                for place in range(begin, end):
                    total[order[place]] += length[v]
            for c in range(len(sizes)):
                if sizes[c] == t + 1:
                    for m in range(L):
                        out[i, m, c] = total[m]


@compiled()
def saturated_distances(rows: FloatArray, crowd: FloatArray, most: float, out: FloatArray) -> None:
    """Write ``out[i, c] = sum_f min(|rows[i, f] - crowd[f, c]|, most)``."""
    out[:] = 0.0
    for i in range(len(rows)):
        distance = out[i]
        for f in range(len(crowd)):
            value, others = rows[i, f], crowd[f]
            for c in range(len(others)):
                distance[c] += min(abs(value - others[c]), most)
