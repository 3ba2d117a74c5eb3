"""Kernels that grow and walk trees.

They follow scikit-learn 1.9. (1.6 and 1.7 differ in one point: values closer than 1e-7 are not equal to them.) There
are two generators. The Mersenne twister of numpy's ``RandomState`` draws the rows of each tree
and the first state of the second, a xorshift of 32 bits (Marsaglia 2003), which draws features and thresholds.

To scikit-learn these are regression trees on a random target. It decides in two places alone: a node in which it does
not vary is a leaf, and so is one whose split does not lower its variance. That is very rare, and then hangs on the last
digits of sums, so these are added up here in the same order.

Kernels get their work space from outside and cut no slices, since both take long to compile.
"""

from typing import Any

import numpy as np

from evenout.core.parallel import compiled
from evenout.core.types import AnyArray, BoolArray, Float32Array, FloatArray, IntArray

CONSTANT = np.float32(1e-7)  # scikit-learn's: a feature that varies no more in a node is constant there


@compiled(bare=True)
def path_lengths(
    X: Float32Array, feature: AnyArray, threshold: FloatArray, child: AnyArray, length: FloatArray,
    root: IntArray, depth: int, sizes: IntArray, node: AnyArray, total: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Write ``out[c, i]``: path length of row i, summed in order over the first ``sizes[c]`` trees.

    All rows go down a tree together, one level at a time, and rest at a leaf, whose children are itself: no
    branch depends on the data, which is three times faster than walking row by row. ``node`` and ``total`` are work
    space for the node of each row and the sum of its paths.
    """
    for i in range(len(X)):
        total[i] = 0.0
    for t in range(len(root)):
        for i in range(len(X)):
            node[i] = root[t]
        for _ in range(depth):
            for i in range(len(X)):
                v = node[i]
                node[i] = child[v, np.intp(X[i, feature[v]] > threshold[v])]
        for i in range(len(X)):
            total[i] += length[node[i]]
        for c in range(len(sizes)):
            if sizes[c] == t + 1:
                for i in range(len(X)):  # assigning the whole row takes seconds to compile
                    out[c, i] = total[i]


@compiled(bare=True)
def add_seen_paths(
    X: Float32Array, feature: AnyArray, threshold: FloatArray, child: AnyArray, length: FloatArray,
    root: IntArray, drawn: IntArray, sizes: IntArray, seen: IntArray, total: FloatArray,
) -> None:  # fmt: skip
    """Add up, for each row, the paths through the trees that were grown from it.

    ``drawn[t]`` lists the rows of tree t. Of the first ``sizes[c]`` trees, ``seen[c, i]`` have drawn row i, and
    ``total[c, i]`` is its path length in these.
    """
    for t in range(len(root)):
        for i in drawn[t]:
            v = root[t]
            while child[v, 0] != v:
                v = child[v, np.intp(X[i, feature[v]] > threshold[v])]
            for c in range(len(sizes)):
                if t < sizes[c]:
                    seen[c, i] += 1
                    total[c, i] += length[v]


@compiled()
def uniform(state: AnyArray) -> Any:
    """The next number in [0, 1) of the generator splitmix64, whose state (1,) moves on."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    x = state[0]
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@compiled()
def shuffle_next(items: IntArray, place: int, state: AnyArray) -> None:
    """Exchange ``items[place]`` with one drawn from it and all later ones."""
    other = place + np.intp(uniform(state) * (len(items) - place))
    items[place], items[other] = items[other], items[place]


@compiled()
def draw_threshold(X: Float32Array, rows: IntArray, feature: int, state: AnyArray) -> Any:
    """A number drawn between the least and the largest value of a feature, or NaN if they are as good as equal."""
    low = high = X[rows[0], feature]
    for i in rows:
        low, high = min(low, X[i, feature]), max(high, X[i, feature])
    if high <= low + CONSTANT:
        return np.nan
    drawn = np.float64(low) + (np.float64(high) - np.float64(low)) * uniform(state)
    return drawn if drawn < high else np.float64(low)


@compiled()
def divide_fold(X: Float32Array, rows: IntArray, feature: int, threshold: float) -> Any:
    """Bring the rows whose value is at most the threshold to the front; how many they are."""
    front = 0
    for j in range(len(rows)):  # without a branch, which would be guessed wrong every other time
        row, first = rows[j], rows[front]
        low = X[row, feature] <= threshold
        rows[front], rows[j] = (row if low else first), (first if low else row)
        front += low
    return front


@compiled()
def grow_fold_trees(
    X: Float32Array, states: AnyArray, start: int, stop: int, max_samples: int, max_depth: int,
    feature: AnyArray, threshold: FloatArray, child: AnyArray, level: IntArray, size: IntArray,
) -> None:  # fmt: skip
    """Grow the isolation trees ``start..stop``, tree t from ``states[t]``, into room for ``2 max_samples - 1`` nodes.

    A node is split at a random threshold of a feature drawn among those that vary in it, unless all are constant
    or it lies at ``max_depth``. ``level`` is its depth, ``size`` the number of its rows. All come filled with 0, and
    ``child`` with the nodes themselves: a node that is not split is a leaf.
    """
    n, d = X.shape
    rows, features = np.empty(n, dtype=np.intp), np.empty(d, dtype=np.intp)
    begin, end = np.empty(2 * max_samples, dtype=np.intp), np.empty(2 * max_samples, dtype=np.intp)
    for t in range(start, stop):
        state = states[t : t + 1]
        for j in range(n):
            rows[j] = j
        for j in range(d):
            features[j] = j
        for j in range(max_samples):
            shuffle_next(rows, j, state)
        first = t * (2 * max_samples - 1)
        begin[0], end[0], used = 0, max_samples, 1
        v = 0
        while v < used:  # nodes are numbered as they come into being, so each is met after its parent
            own = rows[begin[v] : end[v]]
            size[first + v] = len(own)
            cut, j = np.nan, 0
            while level[first + v] < max_depth and len(own) > 1 and j < d and np.isnan(cut):
                shuffle_next(features, j, state)
                cut = draw_threshold(X, own, features[j], state)
                j += 1
            if not np.isnan(cut):
                feature[first + v], threshold[first + v] = features[j - 1], cut
                middle = begin[v] + divide_fold(X, own, features[j - 1], cut)
                begin[used], end[used] = begin[v], middle
                begin[used + 1], end[used + 1] = middle, end[v]
                for side in range(2):
                    child[first + v, side] = first + used
                    level[first + used] = level[first + v] + 1
                    used += 1
            v += 1


WORDS = 624  # of the Mersenne twister's state
LARGEST = 2**31 - 2  # of the numbers that seeds are drawn from
EPSILON = 2.0**-52  # a variance up to this one is none
LEAF = -2.0  # scikit-learn's threshold of a leaf, which is never compared with


@compiled(inline=True)
def twisted(one: int, two: int, far: int) -> Any:
    """Twist two neighbouring words of the state and one far off."""
    pair = (one & 0x80000000) | (two & 0x7FFFFFFF)
    return far ^ (pair >> 1) ^ ((pair & 1) * 0x9908B0DF)


@compiled(bare=True)
def next_words(state: AnyArray, words: AnyArray) -> None:
    """Move the state (624,) of the Mersenne twister (Matsumoto and Nishimura 1998) on, and read 624 words off it."""
    for i in range(WORDS - 397):  # three loops of one kind, since the first two are vectorised
        state[i] = twisted(state[i], state[i + 1], state[i + 397])
    for i in range(WORDS - 397, WORDS - 1):
        state[i] = twisted(state[i], state[i + 1], state[i + 397 - WORDS])
    state[WORDS - 1] = twisted(state[WORDS - 1], state[0], state[396])
    for i in range(WORDS):
        x = state[i]
        x ^= x >> 11
        x ^= (x << 7) & 0x9D2C5680
        x ^= (x << 15) & 0xEFC60000
        words[i] = x ^ (x >> 18)


@compiled(inline=True)
def first_words(seed: int, state: AnyArray, words: AnyArray) -> Any:
    """Start the twister from a seed and read 624 words; the first of them that, in 31 bits, can be a seed."""
    for i in range(WORDS):
        state[i] = seed
        seed = (1812433253 * (seed ^ (seed >> 30)) + i + 1) & 0xFFFFFFFF
    next_words(state, words)
    at = 0
    while words[at] & 0x7FFFFFFF > LARGEST:
        at += 1
    return np.int64(words[at] & 0x7FFFFFFF)


@compiled(bare=True)
def draw_rows(
    seeds: AnyArray, n: int, top: int, state: AnyArray, words: AnyArray, line: AnyArray, drawn: IntArray,
    states: AnyArray,
) -> None:  # fmt: skip
    """Draw the rows of trees among n by a shuffle, and the first states of their xorshifts; in no order.

    Tree t draws from ``seeds[t]``; the first number from there is also the seed for ``states[t]``. ``top`` is the
    smallest number from n - 1 on whose bits are all set, at least 1. From the last place
    to the first, a row is exchanged with the one in a random place up to it: a word is cut to as many bits as the place
    has, and the next is taken while it is too large. Of the shuffled ``line`` the first m are kept, so places that have
    been passed are read no more. Half of an exchange is then enough, and a place that is too large may be written to:
    there is no branch. ``line`` has room for every word that was cut, at most 2 n.

    ``here`` is the place and the number of the word added up: it grows where a word is too large and else stays, so
    each word waits for one comparison and one addition. Places are unsigned: a number that may be negative is compared
    with 0 wherever it is an index.
    """
    n_trees, m = drawn.shape
    for t in range(n_trees):
        seed = first_words(seeds[t], state, words)
        for j in range(n):
            line[j] = j
        at, last, mask = 0, n - 1, top
        while last >= m:
            if at == WORDS:
                next_words(state, words)
                at = 0
            few = min(last - max(m - 1, mask >> 1), WORDS - at)  # so many words are cut to the same bits
            here, bits = np.uint64(last + at), np.uint32(mask)
            for i in range(np.uint64(at), np.uint64(at + few)):
                place = np.uint64(words[i] & bits)
                line[place] = line[here - i]
                here += np.uint64(here < place + i)
            at += few
            last = np.int64(here) - at  # int() of unsigned numbers is unsigned
            if last <= mask >> 1:
                mask >>= 1
        for j in range(m):
            drawn[t, j] = line[j]
        states[t] = first_words(seed, state, words)


@compiled(bare=True)
def draw_few_rows(
    seeds: AnyArray, n: int, top: int, state: AnyArray, words: AnyArray, drawn: IntArray, states: AnyArray
) -> None:
    """`draw_rows` where they are few among all: one by one, each again until it is a new one."""
    for t in range(len(seeds)):
        seed = first_words(seeds[t], state, words)
        at = j = 0
        while j < drawn.shape[1]:
            if at == WORDS:
                next_words(state, words)
                at = 0
            row = np.int64(words[at] & top)
            new = row < n
            for i in range(j):
                new &= drawn[t, i] != row
            drawn[t, j] = row
            j += int(new)
            at += 1
        states[t] = first_words(seed, state, words)


@compiled(inline=True)
def next_state(x: int) -> Any:
    """The next state of a xorshift of 32 bits, of which 31 are the number drawn."""
    if x == 0:
        x = 1
    x ^= (x << 13) & 0xFFFFFFFF
    x ^= x >> 17
    return x ^ ((x << 5) & 0xFFFFFFFF)


@compiled(inline=True)
def draw_split(
    X: FloatArray, rows: IntArray, start: int, stop: int, values: Float32Array, features: IntArray, constant: IntArray,
    known: int, x: int,
) -> Any:  # fmt: skip
    """Draw a feature that varies among ``rows[start:stop]``, or -1, and a threshold; how many are constant; the state.

    Its values go into ``values``. The first ``known`` entries of ``constant``, and of ``features``, do not vary in the
    parent; those found here are appended. The other features stay in the order that draws have made.
    """
    d, found, passed = len(features), 0, 0
    chosen, threshold = -1, 0.0
    while chosen < 0 and known + found < d:
        x = next_state(x)
        j = passed + (x & 0x7FFFFFFF) % (d - found - passed)
        if j < known:
            features[passed], features[j] = features[j], features[passed]
            passed += 1
            continue
        j += found
        f = features[j]
        low = high = np.float32(X[rows[start], f])
        for i in range(start, stop):
            value = np.float32(X[rows[i], f])
            values[i] = value
            if value < low:
                low = value
            if value > high:
                high = value
        if high <= low + CONSTANT:
            features[j], features[known + found] = features[known + found], f
            found += 1
        else:
            features[j], features[d - 1] = features[d - 1], f
            x, chosen = next_state(x), f
            threshold = (np.float64(high) - np.float64(low)) * (x & 0x7FFFFFFF) / (2.0**31 - 1.0) + np.float64(low)
            if threshold == high:
                threshold = np.float64(low)
    for i in range(known):
        features[i] = constant[i]
    for i in range(known, known + found):
        constant[i] = features[i]
    return chosen, threshold, known + found, x


@compiled(inline=True)
def divide(rows: IntArray, values: Float32Array, target: FloatArray, front: int, back: int, threshold: float) -> Any:
    """Bring those of the rows ``front..back`` whose value is at most the threshold to the front; where they end."""
    while front < back:
        if values[front] <= threshold:
            front += 1
        else:
            back -= 1
            rows[front], rows[back] = rows[back], rows[front]
            values[front], values[back] = values[back], values[front]
            target[front], target[back] = target[back], target[front]
    return front


@compiled(inline=True)
def variances(target: FloatArray, start: int, middle: int, stop: int, total: float, squares: float) -> Any:
    """Variance of the targets ``start..middle`` and ``middle..stop``, by the sums over both.

    The sum over the shorter part is added up, that over the other is what is left.
    """
    first = first_squares = 0.0
    for j in range(start, middle):
        first += target[j]
        first_squares += target[j] * target[j]
    if middle - start > stop - middle:
        first = total
        for j in range(stop - 1, middle - 1, -1):
            first -= target[j]
    mean, rest = first / (middle - start), (total - first) / (stop - middle)
    return first_squares / (middle - start) - mean * mean, (squares - first_squares) / (stop - middle) - rest * rest


@compiled(bare=True)
def grow_trees(
    X: FloatArray, y: FloatArray, drawn: IntArray, states: AnyArray, max_depth: int,
    rows: IntArray, values: Float32Array, target: FloatArray, features: IntArray, constant: IntArray,
    waiting: IntArray, variance: FloatArray,
    feature: AnyArray, threshold: FloatArray, child: AnyArray, level: AnyArray, size: AnyArray, root: IntArray,
) -> Any:  # fmt: skip
    """Grow a tree from each line of ``drawn``, rows in ascending order, and of ``states``; the number of all nodes.

    A node is split at a random threshold of a feature drawn among those that vary in it, or is a leaf, its own child.
    ``level`` is its depth, ``size`` the number of its rows. Nodes are numbered from a root on, all below a first child
    before the second one. Those that are ``waiting`` are known by where their rows begin and end, the place of their
    number in ``child``, how many constant features they know, and the target's variance.
    """
    m, v = len(rows), 0
    for t in range(len(drawn)):
        for j in range(m):
            rows[j] = drawn[t, j]
            target[j] = y[rows[j]]
        for j in range(len(features)):
            features[j] = j
        waiting[0, 0] = waiting[0, 3] = 0
        waiting[0, 1], waiting[0, 2] = m, -1
        root[t] = v
        left, depth, x = 1, 0, states[t]
        while left > 0:
            left -= 1
            first, last, place, known = waiting[left, 0], waiting[left, 1], waiting[left, 2], waiting[left, 3]
            if place >= 0:
                child[place >> 1, place & 1] = v
                depth = level[place >> 1] + 1
            n = last - first
            child[v, 0] = child[v, 1] = v
            feature[v], threshold[v] = 0, LEAF
            level[v], size[v] = depth, n
            if n > 1 and depth < max_depth:
                total = squares = 0.0
                for j in range(first, last):
                    total += target[j]
                    squares += target[j] * target[j]
                if place < 0:
                    variance[0] = squares / n - (total / n) * (total / n)
                whole, middle = variance[left], last
                if whole > EPSILON:
                    f, cut, known, x = draw_split(X, rows, first, last, values, features, constant, known, x)
                    if f >= 0:
                        middle = divide(rows, values, target, first, last, cut)
                if middle < last:
                    a, b = variances(target, first, middle, last, total, squares)
                    if n / m * (whole - (last - middle) / n * b - (middle - first) / n * a) + EPSILON >= 0.0:
                        feature[v], threshold[v] = f, cut
                        waiting[left, 0], waiting[left, 1], waiting[left, 2] = middle, last, 2 * v + 1
                        waiting[left + 1, 0], waiting[left + 1, 1], waiting[left + 1, 2] = first, middle, 2 * v
                        variance[left], variance[left + 1] = b, a
                        waiting[left, 3] = waiting[left + 1, 3] = known
                        left += 2
            v += 1
    return v


@compiled()
def add_leaves(
    Z: FloatArray, first: IntArray, feature: IntArray, left: IntArray, right: IntArray,
    threshold: FloatArray, value: FloatArray, missing_left: BoolArray, out: FloatArray,
) -> None:  # fmt: skip
    """Add to ``out[i, t % S]`` the value of the leaf that row i comes to in tree t, tree after tree."""
    for i in range(len(Z)):
        for t in range(len(first)):
            v = first[t]
            while left[v] > 0:
                x = Z[i, feature[v]]
                down = missing_left[v] if np.isnan(x) else x <= threshold[v]
                v = left[v] if down else right[v]
            out[i, t % out.shape[1]] += value[v]
