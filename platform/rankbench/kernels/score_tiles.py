"""Sums over all items of a function of a user's scores, and their gradients, compiled and in blocks that stay in the cache.

For the scores s_uj = u · v_j of a block of users with all items, this file computes

    G_u = Σ_j f(x_uj),    x_uj = scale · s_uj − shift_u,    or scale · s_uj where f itself has the shift,

with a pass over the items for each block of `USERS` users: a product gives the scores of a tile of `USERS` users and `ITEMS`
items, f replaces them by its slopes f'(x), and a second product adds the slopes times the item vectors to the gradient of the
users. The slopes stay in memory. When the derivative of the loss by G is known, a third product multiplies them by the
vectors of the users, which gives the gradient of the items. `tests/kernels/plain.py` uses an array of all scores instead.

A block of users, and in the third product a tile of items, is computed by one thread in a fixed order, so the bits do not
depend on the number of threads.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numba.core import cgutils

from rankbench.core.compiler import numba
from rankbench.core.simd import LANES, Numbers, fma, integer, kernel, plus, spread

USERS, ITEMS = 48, 192  # sizes of a tile: multiples of the products' sizes below
# f(x): exp(x), log(1 + exp(x)), max(x, 0), σ(x)^power, σ(x), and log(1 + exp(square · σ(x)² + power · σ(x) − shift_u))
EXP, SOFTPLUS, RELU, SIGMOID_POWER, SIGMOID, SOFTPLUS_OF_SIGMOID = range(6)
FAR = -1e30  # x of an item that is left out: f and its slope are 0, or exp(-87) in float32


def _product(name: str, rows: int, vectors: int, add: bool):
    """Make a kernel that sets or adds C[r, :] = Σ_k A[r, k] B[k, :] for so many rows and vectors, which stay in registers.

    Element (r, k) of A is at a + r · a_row + k · a_k; row k of B at b + k · b_k; row r of C at c + r · c_row.
    """

    def emit(builder, C, c, c_row, A, a, a_row, a_k, B, b, b_k, n):
        cells = [(r, i) for r in range(rows) for i in range(vectors)]
        at = {(r, i): builder.add(plus(builder, c, r, c_row), integer(i * LANES)) for r, i in cells}
        sums = {cell: cgutils.alloca_once_value(builder, C.load(at[cell]) if add else C.zero) for cell in cells}
        first = [plus(builder, a, r, a_row) for r in range(rows)]
        with cgutils.for_range(builder, n) as loop:
            start = plus(builder, b, loop.index, b_k)
            right = [B.load(builder.add(start, integer(i * LANES))) for i in range(vectors)]
            for r in range(rows):
                element = builder.load(builder.gep(A.data, [plus(builder, first[r], loop.index, a_k)]))
                left = spread(builder, C.type, element)
                for i in range(vectors):
                    builder.store(fma(builder, left, right[i], builder.load(sums[r, i])), sums[r, i])
        for cell in cells:
            C.store(builder.load(sums[cell]), at[cell])

    emit.__name__ = name
    return kernel(emit)


_set_scores = _product("set_scores", 8, USERS // LANES, add=False)
_add_four = _product("add_four", 6, 4, add=True)
_add_one = _product("add_one", 6, 1, add=True)


def _exponential(numbers: Numbers, x, power):
    value = numbers.exp(x)
    return value, value


def _shares(numbers: Numbers, x):
    """exp(−|x|), σ(x) and σ(−x)."""
    builder = numbers.builder
    y = numbers.exp(numbers.where("<", x, numbers.zero, x, builder.fneg(x)))
    large = builder.fdiv(numbers.one, builder.fadd(numbers.one, y))
    small = builder.fmul(y, large)
    negative = builder.fcmp_ordered("<", x, numbers.zero)
    return y, builder.select(negative, small, large), builder.select(negative, large, small)


def _softplus(numbers: Numbers, x, power):
    y, slope, _ = _shares(numbers, x)
    positive = numbers.where("<", x, numbers.zero, numbers.zero, x)
    return numbers.builder.fadd(positive, numbers.log_of_one_plus(y)), slope


def _relu(numbers: Numbers, x, power):
    return numbers.where(">", x, numbers.zero, x, numbers.zero), numbers.where(">", x, numbers.zero, numbers.one, numbers.zero)


def _sigmoid(numbers: Numbers, x, power):
    _, value, of_minus_x = _shares(numbers, x)
    return value, numbers.builder.fmul(value, of_minus_x)


def _sigmoid_power(numbers: Numbers, x, power):
    builder = numbers.builder
    y, _, of_minus_x = _shares(numbers, x)
    log_sigmoid = builder.fsub(numbers.where("<", x, numbers.zero, x, numbers.zero), numbers.log_of_one_plus(y))
    value = numbers.exp(builder.fmul(power, log_sigmoid))
    return value, builder.fmul(builder.fmul(power, value), of_minus_x)


def _of_x(function):
    """A function of x = scale · score − shift for `_slopes`."""

    def terms(numbers: Numbers, score, scale, minus, power, square):
        value, slope = function(numbers, numbers.fma(score, scale, minus), power)
        return slope, (value, slope)

    return terms


def _softplus_of_sigmoid(numbers: Numbers, score, scale, minus, power, square):
    """With the shift outside the sigmoid, the slopes by −shift and by the power are not those by x."""
    builder = numbers.builder
    _, share, rest = _shares(numbers, builder.fmul(score, scale))
    counts = numbers.where("<", score, numbers(FAR / 2), numbers.zero, numbers.one)
    line = numbers.fma(square, share, power)
    value, weight = _softplus(numbers, numbers.fma(line, share, minus), power)
    value, weight = builder.fmul(value, counts), builder.fmul(weight, counts)
    steep = numbers.fma(square, share, line)  # the derivative of square · σ² + power · σ by σ
    slope = builder.fmul(builder.fmul(weight, steep), builder.fmul(share, rest))
    return slope, (value, weight, builder.fmul(weight, share))


# By kind.
_TERMS = (*(_of_x(f) for f in (_exponential, _softplus, _relu, _sigmoid_power, _sigmoid)), _softplus_of_sigmoid)


@kernel
def _slopes(builder, kind, tile, valid, shift, scale, power, square, sums, slopes, of_power):
    """Replace the scores of `valid` items with USERS users by f'(x), and add up per user f(x), its slope by −shift and, where f
    has a power, its slope by that.
    """
    numbers = Numbers(builder, tile.type)
    scale, power, square = (spread(builder, tile.type, value) for value in (scale, power, square))
    targets = sums, slopes, of_power
    for (number, terms), i in product(enumerate(_TERMS), range(USERS // LANES)):
        at = integer(i * LANES)
        with builder.if_then(builder.icmp_signed("==", kind, integer(number))):
            minus = builder.fneg(shift.load(at))
            totals = [cgutils.alloca_once_value(builder, tile.zero) for _ in targets]
            with cgutils.for_range(builder, valid) as loop:
                place = builder.add(builder.mul(loop.index, integer(USERS)), at)
                slope, added = terms(numbers, tile.load(place), scale, minus, power, square)
                tile.store(slope, place)
                for total, each in zip(totals, added, strict=False):
                    builder.store(builder.fadd(builder.load(total), each), total)
            for target, total in zip(targets, totals, strict=True):
                target.store(builder.fadd(target.load(at), builder.load(total)), at)


@numba.njit(nogil=True, fastmath=True, error_model="numpy")
def _add_product(C, c, c_row, A, a, a_row, a_k, B, b, b_k, n, width):
    """Six rows of C += A B, `width` elements each, a multiple of LANES."""
    done = 0
    while done + 4 * LANES <= width:
        _add_four(C, c + done, c_row, A, a, a_row, a_k, B, b + done, b_k, n)
        done += 4 * LANES
    while done < width:
        _add_one(C, c + done, c_row, A, a, a_row, a_k, B, b + done, b_k, n)
        done += LANES


@numba.njit(nogil=True, error_model="numpy")
def _set_tile(tile, columns, block, items, offset, width):
    """The scores of ITEMS items (rows of the tile) with the USERS users of a block, whose vectors are columns."""
    for j in range(0, ITEMS, 8):
        _set_scores(tile, j * USERS, USERS, items, offset + j * width, width, 1, columns, block * width * USERS, USERS, width)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_up(kind, tables, n_items, width, numbers, shift, left_out, indptr, indices, kept, out, begin, start, stop):
    """For the blocks of users begin + start to begin + stop: add to the arrays of `out` G, its slopes by −shift, those by the
    power for SOFTPLUS_OF_SIGMOID alone, and Σ_j f'(x) v_j, (blocks, USERS, width).

    All arrays are flat. `tables`: the users (blocks, width, USERS), the items (n_items, width), and the last ITEMS or fewer
    items followed by zeros. `numbers`: scale, power and square. `kept`, for the slopes f'(x) of the blocks from `begin` on:
    (blocks, tiles, ITEMS, USERS). With `left_out`, the items of user b, `indices[indptr[b]:indptr[b + 1]]` in ascending order,
    do not count.
    """
    (columns, items, tail), (scale, power, square), (sums, slopes, of_power, user_grad) = tables, numbers, out
    n_tiles = (n_items + ITEMS - 1) // ITEMS
    n_users = len(indptr) - 1
    next_own = np.zeros(USERS, np.int64)
    for block in range(begin + start, begin + stop):
        first = block * USERS
        for u in range(USERS):
            next_own[u] = indptr[min(first + u, n_users)]
        by, G = shift[first : first + USERS], sums[first : first + USERS]
        of_shift, of_p = slopes[first : first + USERS], of_power[first : first + USERS]
        for number in range(n_tiles):
            last = number == n_tiles - 1
            source, offset = (tail, 0) if last else (items, number * ITEMS * width)
            at = ((block - begin) * n_tiles + number) * ITEMS * USERS
            tile = kept[at : at + ITEMS * USERS]
            _set_tile(tile, columns, block, source, offset, width)
            valid = min(ITEMS, n_items - number * ITEMS)
            if left_out:
                for u in range(min(USERS, n_users - first)):
                    end = indptr[first + u + 1]
                    while next_own[u] < end and indices[next_own[u]] < number * ITEMS + valid:
                        tile[(indices[next_own[u]] - number * ITEMS) * USERS + u] = FAR
                        next_own[u] += 1
            _slopes(kind, tile, valid, by, scale, power, square, G, of_shift, of_p)
            for x in range(valid * USERS, ITEMS * USERS):
                tile[x] = 0
            for u in range(0, USERS, 6):
                _add_product(user_grad, (first + u) * width, width, tile, u, 1, USERS, source, offset, width, ITEMS, width)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def spread_back(kept, users, n_blocks, n_items, width, item_grad, tail_grad, start, stop):
    """For the tiles of items start to stop: add Σ_u f'(x) users_u to `item_grad`, flat (n_items, width), or for the last tile
    to `tail_grad`. `users` is flat, (blocks, USERS, width), with zeros beyond the last user.
    """
    n_tiles = (n_items + ITEMS - 1) // ITEMS
    for number in range(start, stop):
        target, offset = (tail_grad, 0) if number == n_tiles - 1 else (item_grad, number * ITEMS * width)
        for block in range(n_blocks):
            begin, rows = (block * n_tiles + number) * ITEMS * USERS, block * USERS * width
            for j in range(0, ITEMS, 6):
                at = offset + j * width
                _add_product(target, at, width, kept, begin + j * USERS, USERS, 1, users, rows, width, USERS, width)


@numba.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def largest(tables, n_items, width, k, tiles, best, start, stop):
    """For the blocks of users start to stop: the k largest scores of each user, `best` (users, k), smallest first."""
    columns, items, tail = tables
    n_tiles = (n_items + ITEMS - 1) // ITEMS
    top = np.empty(USERS, best.dtype)
    for block in range(start, stop):
        tile = tiles[block * ITEMS * USERS : (block + 1) * ITEMS * USERS]
        for number in range(n_tiles):
            last = number == n_tiles - 1
            source, offset = (tail, 0) if last else (items, number * ITEMS * width)
            _set_tile(tile, columns, block, source, offset, width)
            valid = min(ITEMS, n_items - number * ITEMS)
            # Few tiles have a score that belongs into a user's list: the others cost one comparison per score.
            top[:] = tile[:USERS]
            for j in range(1, valid):
                for u in range(USERS):
                    top[u] = max(top[u], tile[j * USERS + u])
            for u in range(USERS):
                own = best[block * USERS + u]
                for j in range(valid if top[u] > own[0] else 0):
                    score = tile[j * USERS + u]
                    if score > own[0]:
                        position = 0
                        while position + 1 < k and own[position + 1] < score:
                            own[position] = own[position + 1]
                            position += 1
                        own[position] = score
