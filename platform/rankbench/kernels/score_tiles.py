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

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils

from rankbench.core.simd import LANES, Numbers, fma, integer, kernel, spread

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
        at = {(r, i): builder.add(builder.add(c, builder.mul(integer(r), c_row)), integer(i * LANES)) for r, i in cells}
        sums = {cell: cgutils.alloca_once(builder, C.type) for cell in cells}
        for cell in cells:
            builder.store(C.load(at[cell]) if add else ir.Constant(C.type, None), sums[cell])
        first = [builder.add(a, builder.mul(integer(r), a_row)) for r in range(rows)]
        with cgutils.for_range(builder, n) as loop:
            start = builder.add(b, builder.mul(loop.index, b_k))
            right = [B.load(builder.add(start, integer(i * LANES))) for i in range(vectors)]
            for r in range(rows):
                element = builder.load(builder.gep(A.data, [builder.add(first[r], builder.mul(loop.index, a_k))]))
                left = spread(builder, C.type, element)
                for i in range(vectors):
                    builder.store(fma(builder, left, right[i], builder.load(sums[r, i])), sums[r, i])
        for cell in cells:
            C.store(builder.load(sums[cell]), at[cell])

    emit.__name__ = name
    return kernel(emit)


_set_scores = _product("set_scores", 8, USERS // LANES, add=False)
_set_four = _product("set_four", 6, 4, add=False)
_set_one = _product("set_one", 6, 1, add=False)
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
    return (
        numbers.where(">", x, numbers.zero, x, numbers.zero),
        numbers.where(">", x, numbers.zero, numbers.one, numbers.zero),
    )


def _sigmoid(numbers: Numbers, x, power):
    _, value, of_minus_x = _shares(numbers, x)
    return value, numbers.builder.fmul(value, of_minus_x)


def _sigmoid_power(numbers: Numbers, x, power):
    builder = numbers.builder
    y, _, of_minus_x = _shares(numbers, x)
    log_sigmoid = builder.fsub(numbers.where("<", x, numbers.zero, x, numbers.zero), numbers.log_of_one_plus(y))
    value = numbers.exp(builder.fmul(power, log_sigmoid))
    return value, builder.fmul(builder.fmul(power, value), of_minus_x)


def _slopes(name: str, shape):
    """Make a kernel that replaces scores of `valid` items with USERS users by f'(x), and adds f(x) and f'(x) up per user."""

    def emit(builder, tile, valid, shift, scale, power, sums, slopes):
        numbers = Numbers(builder, tile.type)
        scale, power = spread(builder, tile.type, scale), spread(builder, tile.type, power)
        for i in range(USERS // LANES):
            at = integer(i * LANES)
            minus = builder.fneg(shift.load(at))
            total, slope_total = (cgutils.alloca_once(builder, tile.type) for _ in range(2))
            for target in (total, slope_total):
                builder.store(ir.Constant(tile.type, None), target)
            with cgutils.for_range(builder, valid) as loop:
                place = builder.add(builder.mul(loop.index, integer(USERS)), at)
                value, slope = shape(numbers, numbers.fma(tile.load(place), scale, minus), power)
                tile.store(slope, place)
                builder.store(builder.fadd(builder.load(total), value), total)
                builder.store(builder.fadd(builder.load(slope_total), slope), slope_total)
            sums.store(builder.fadd(sums.load(at), builder.load(total)), at)
            slopes.store(builder.fadd(slopes.load(at), builder.load(slope_total)), at)

    emit.__name__ = name
    return kernel(emit)


@kernel
def _softplus_of_sigmoid_slopes(builder, tile, valid, shift, scale, power, square, sums, slopes, of_power):
    """As the kernels of `_slopes`, for a shift outside the sigmoid: `slopes` are those by −shift, `of_power` those by power."""
    numbers = Numbers(builder, tile.type)
    scale, power, square = (spread(builder, tile.type, value) for value in (scale, power, square))
    for i in range(USERS // LANES):
        at = integer(i * LANES)
        minus = builder.fneg(shift.load(at))
        targets = sums, slopes, of_power
        totals = [cgutils.alloca_once(builder, tile.type) for _ in targets]
        for total in totals:
            builder.store(tile.zero, total)
        with cgutils.for_range(builder, valid) as loop:
            place = builder.add(builder.mul(loop.index, integer(USERS)), at)
            score = tile.load(place)
            _, share, rest = _shares(numbers, builder.fmul(score, scale))
            counts = numbers.where("<", score, numbers(FAR / 2), numbers.zero, numbers.one)
            line = numbers.fma(square, share, power)
            value, weight = _softplus(numbers, numbers.fma(line, share, minus), power)
            value, weight = builder.fmul(value, counts), builder.fmul(weight, counts)
            steep = numbers.fma(square, share, line)  # the derivative of square · σ² + power · σ by σ
            tile.store(builder.fmul(builder.fmul(weight, steep), builder.fmul(share, rest)), place)
            for total, each in zip(totals, (value, weight, builder.fmul(weight, share)), strict=True):
                builder.store(builder.fadd(builder.load(total), each), total)
        for target, total in zip(targets, totals, strict=True):
            target.store(builder.fadd(target.load(at), builder.load(total)), at)


_exp_slopes = _slopes("exp_slopes", _exponential)
_softplus_slopes = _slopes("softplus_slopes", _softplus)
_relu_slopes = _slopes("relu_slopes", _relu)
_sigmoid_power_slopes = _slopes("sigmoid_power_slopes", _sigmoid_power)
_sigmoid_slopes = _slopes("sigmoid_slopes", _sigmoid)


def _wide(four, one):
    """Make the function of six rows of C = A B or C += A B, `width` elements each, a multiple of LANES."""

    @numba.njit(nogil=True, fastmath=True, error_model="numpy")
    def product(C, c, c_row, A, a, a_row, a_k, B, b, b_k, n, width):
        done = 0
        while done + 4 * LANES <= width:
            four(C, c + done, c_row, A, a, a_row, a_k, B, b + done, b_k, n)
            done += 4 * LANES
        while done < width:
            one(C, c + done, c_row, A, a, a_row, a_k, B, b + done, b_k, n)
            done += LANES

    return product


_set_product, _add_product = _wide(_set_four, _set_one), _wide(_add_four, _add_one)


@numba.njit(nogil=True, error_model="numpy")
def _set_tile(tile, columns, block, items, offset, width):
    """The scores of ITEMS items (rows of the tile) with the USERS users of a block, whose vectors are columns."""
    for j in range(0, ITEMS, 8):
        _set_scores(tile, j * USERS, USERS, items, offset + j * width, width, 1, columns, block * width * USERS, USERS, width)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_up(
    kind,
    columns,
    items,
    tail,
    n_items,
    width,
    scale,
    power,
    square,
    shift,
    left_out,
    indptr,
    indices,
    kept,
    sums,
    slopes,
    of_power,
    user_grad,
    start,
    stop,
):
    """For the blocks of users start to stop: `sums` G, its slopes by −shift, `slopes`, and `user_grad` Σ_j f'(x) v_j.

    Slopes by the power are added to `of_power` for SOFTPLUS_OF_SIGMOID alone.

    All arrays are flat: `columns` (blocks, width, USERS), `items` (n_items, width), `tail` the last ITEMS or fewer items
    followed by zeros, `kept` (blocks, tiles, ITEMS, USERS), `user_grad` (blocks, USERS, width). With `left_out`, the items of
    user b, `indices[indptr[b]:indptr[b + 1]]` in ascending order, do not count.
    """
    n_tiles = (n_items + ITEMS - 1) // ITEMS
    n_users = len(indptr) - 1
    next_own = np.zeros(USERS, np.int64)
    for block in range(start, stop):
        first = block * USERS
        for u in range(USERS):
            next_own[u] = indptr[min(first + u, n_users)]
        own_shift, own_sums, own_slopes, own_of_power = (
            shift[first : first + USERS],
            sums[first : first + USERS],
            slopes[first : first + USERS],
            of_power[first : first + USERS],
        )
        for number in range(n_tiles):
            last = number == n_tiles - 1
            source, offset = (tail, 0) if last else (items, number * ITEMS * width)
            begin = (block * n_tiles + number) * ITEMS * USERS
            tile = kept[begin : begin + ITEMS * USERS]
            _set_tile(tile, columns, block, source, offset, width)
            valid = min(ITEMS, n_items - number * ITEMS)
            if left_out:
                for u in range(min(USERS, n_users - first)):
                    end = indptr[first + u + 1]
                    while next_own[u] < end and indices[next_own[u]] < number * ITEMS + valid:
                        tile[(indices[next_own[u]] - number * ITEMS) * USERS + u] = FAR
                        next_own[u] += 1
            if kind == EXP:
                _exp_slopes(tile, valid, own_shift, scale, power, own_sums, own_slopes)
            elif kind == SOFTPLUS:
                _softplus_slopes(tile, valid, own_shift, scale, power, own_sums, own_slopes)
            elif kind == RELU:
                _relu_slopes(tile, valid, own_shift, scale, power, own_sums, own_slopes)
            elif kind == SIGMOID:
                _sigmoid_slopes(tile, valid, own_shift, scale, power, own_sums, own_slopes)
            elif kind == SOFTPLUS_OF_SIGMOID:
                _softplus_of_sigmoid_slopes(tile, valid, own_shift, scale, power, square, own_sums, own_slopes, own_of_power)
            else:
                _sigmoid_power_slopes(tile, valid, own_shift, scale, power, own_sums, own_slopes)
            for x in range(valid * USERS, ITEMS * USERS):
                tile[x] = 0
            for u in range(0, USERS, 6):
                _add_product(user_grad, (first + u) * width, width, tile, u, 1, USERS, source, offset, width, ITEMS, width)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def spread_back(kept, users, n_blocks, n_items, width, first, item_grad, tail_grad, start, stop):
    """For the tiles of items start to stop: `item_grad` Σ_u f'(x) users_u, flat (n_items, width), the last tile in `tail_grad`.

    The sums replace what the arrays hold if these users are the `first`, and are added to it otherwise. `users` is flat,
    (blocks, USERS, width), with zeros beyond the last user.
    """
    n_tiles = (n_items + ITEMS - 1) // ITEMS
    for number in range(start, stop):
        last = number == n_tiles - 1
        target, offset = (tail_grad, 0) if last else (item_grad, number * ITEMS * width)
        for block in range(n_blocks):
            begin = (block * n_tiles + number) * ITEMS * USERS
            rows = block * USERS * width
            for j in range(0, ITEMS, 6):
                at = offset + j * width
                if first and block == 0:
                    _set_product(target, at, width, kept, begin + j * USERS, USERS, 1, users, rows, width, USERS, width)
                else:
                    _add_product(target, at, width, kept, begin + j * USERS, USERS, 1, users, rows, width, USERS, width)


@numba.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def largest(columns, items, tail, n_items, width, k, tiles, best, start, stop):
    """For the blocks of users start to stop: the k largest scores of each user, `best` (users, k), smallest first."""
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
