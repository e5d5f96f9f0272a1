"""SIMD kernels for small dense systems, sixteen at a time: every number is a vector with one system per SIMD lane.

A single 20 x 20 Cholesky factorisation does not use the width of a SIMD register, because its rows are too short. Sixteen of
them side by side do at every step. The functions here are the few inner loops that must stay in registers. They use the vector
types of LLVM, which compile to the vectors of the processor. Arrays are flat and contiguous, offsets and strides count
elements, and a "vector" is LANES consecutive elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llvmlite import ir
from numba.core import cgutils

from rankbench.core.simd import LANES, Numbers, fma, function, integer, kernel, plus, prefetch, shuffle, spread

TILE = 4  # a tile of 4 x 4 vectors and its operands stay in registers


def _fnma(builder, a, b, c):
    """c − a·b."""
    return fma(builder, builder.fneg(a), b, c)


def _named(name: str, emit: Callable[..., None]) -> Callable:
    """The kernel of that name."""
    emit.__name__ = name
    return kernel(emit)


def _product(name: str, subtract: bool) -> Callable:
    """The kernel of C[i, j] ± Σ_k A[i, k] B[j, k] for a tile; rows of C, A and B are `stride` apart, the vectors of a row
    contiguous.
    """

    def emit(builder, C, c, c_stride, A, a, a_stride, B, b, b_stride, n):
        elements = [(i, j) for i in range(TILE) for j in range(TILE)]
        at = {(i, j): builder.add(plus(builder, c, i, c_stride), integer(j * LANES)) for i, j in elements}
        sums = {element: cgutils.alloca_once_value(builder, C.load(at[element])) for element in elements}
        rows_a = [plus(builder, a, i, a_stride) for i in range(TILE)]
        rows_b = [plus(builder, b, j, b_stride) for j in range(TILE)]
        with cgutils.for_range(builder, n) as loop:
            step = builder.mul(loop.index, integer(LANES))
            left = [A.load(builder.add(row, step)) for row in rows_a]
            right = [B.load(builder.add(row, step)) for row in rows_b]
            if subtract:
                left = [builder.fneg(vector) for vector in left]
            for i, j in elements:
                builder.store(fma(builder, left[i], right[j], builder.load(sums[i, j])), sums[i, j])
        for element in elements:
            C.store(builder.load(sums[element]), at[element])

    return _named(name, emit)


add_product, subtract_product = _product("add_product", subtract=False), _product("subtract_product", subtract=True)


def _dots(name: str, subtract: bool, count: int = 1) -> Callable:
    """The kernel of C[i] ± Σ_k A[i, k] B[k] for `count` consecutive vectors of C, none of which waits for another's sum; rows
    of A are `a_row` apart, the vectors of a row and those of B a stride.
    """

    def emit(builder, C, c, A, a, a_row, a_stride, B, b, b_stride, n):
        at = [builder.add(c, integer(i * LANES)) for i in range(count)]
        totals = [cgutils.alloca_once_value(builder, C.load(offset)) for offset in at]
        rows = [plus(builder, a, i, a_row) for i in range(count)]
        with cgutils.for_range(builder, n) as loop:
            right = B.load(plus(builder, b, loop.index, b_stride))
            right = builder.fneg(right) if subtract else right
            for total, row in zip(totals, rows, strict=True):
                left = A.load(plus(builder, row, loop.index, a_stride))
                builder.store(fma(builder, left, right, builder.load(total)), total)
        for total, offset in zip(totals, at, strict=True):
            C.store(builder.load(total), offset)

    return _named(name, emit)


add_dot, subtract_dot = _dots("add_dot", subtract=False), _dots("subtract_dot", subtract=True)
subtract_dots = _dots("subtract_dots", subtract=True, count=TILE)


@kernel
def scale_lanes(builder, own, spectrum, h, width, root, scale, start):
    """For D = w0 · spectrum + reg of every lane: root = D^-½, scale = √w1 D^-½ and start = D^-½ t₀ h, (width,) vectors each.

    `own` holds the lanes' w0, reg, √w1, t₀, and the least value of D whose root is not set to 0.
    """
    w0, reg, w1, t0, least = (own.load(integer(i * LANES)) for i in range(5))
    number = Numbers(builder, own.type)
    square_root = function(builder, "sqrt", own.type, 1)
    with cgutils.for_range(builder, width) as loop:
        value, target = (builder.load(builder.gep(each.data, [loop.index])) for each in (spectrum, h))
        d = number.fma(w0, spread(builder, own.type, value), reg)
        inverse = builder.fdiv(number.one, builder.call(square_root, [d]))
        inverse = number.where(">", d, least, inverse, number.zero)
        at = builder.mul(loop.index, integer(LANES))
        root.store(inverse, at)
        scale.store(builder.fmul(w1, inverse), at)
        start.store(builder.fmul(builder.fmul(t0, spread(builder, own.type, target)), inverse), at)


@kernel
def factor_tile(builder, S, s, stride):
    """Overwrite a diagonal tile with its Cholesky factor, whose diagonal is stored as its inverse."""
    root = function(builder, "sqrt", S.type, 1)
    one = ir.Constant(S.type, [ir.Constant(S.element, 1.0)] * LANES)
    at = {(i, j): builder.add(plus(builder, s, i, stride), integer(j * LANES)) for i in range(TILE) for j in range(i + 1)}
    L = {element: S.load(offset) for element, offset in at.items()}
    for j in range(TILE):
        for k in range(j):
            for i in range(j, TILE):
                L[i, j] = _fnma(builder, L[i, k], L[j, k], L[i, j])
        L[j, j] = builder.fdiv(one, builder.call(root, [L[j, j]]))
        for i in range(j + 1, TILE):
            L[i, j] = builder.fmul(L[i, j], L[j, j])
    for element, offset in at.items():
        S.store(L[element], offset)


@kernel
def solve_tile(builder, S, x, d, stride):
    """Overwrite the tile X at x with X L^-T, where L is the factored tile at d."""
    L = {
        (i, j): S.load(builder.add(plus(builder, d, i, stride), integer(j * LANES))) for i in range(TILE) for j in range(i + 1)
    }
    for r in range(TILE):
        at = [builder.add(plus(builder, x, r, stride), integer(j * LANES)) for j in range(TILE)]
        row = [S.load(offset) for offset in at]
        for j in range(TILE):
            for k in range(j):
                row[j] = _fnma(builder, row[k], L[j, k], row[j])
            row[j] = builder.fmul(row[j], L[j, j])
            S.store(row[j], at[j])


@kernel
def gather_transposed(builder, source, offsets, o, shift, scale, s, target, t, t_stride):
    """Load LANES consecutive elements of `source` at each of the LANES positions offsets[o:] + shift, and transpose them.

    Then each lane belongs to one position. The result is multiplied by the vectors of `scale` from s on, and stored in the
    vectors of `target` that are t_stride apart from t on.
    """
    rows = []
    for lane in range(LANES):
        offset = builder.load(builder.gep(offsets.data, [builder.add(o, integer(lane))]))
        rows.append(source.load(builder.add(offset, shift)))
    for k, column in enumerate(_transposed(builder, rows)):
        factor = scale.load(builder.add(s, integer(k * LANES)))
        target.store(builder.fmul(column, factor), plus(builder, t, k, t_stride))


@kernel
def prefetch_row(builder, source, width, offsets, o):
    """Prefetch the `width` elements of `source` at offsets[o]."""
    offset = builder.load(builder.gep(offsets.data, [o]))
    with cgutils.for_range_slice(builder, integer(0), width, integer(LANES), ir.IntType(64)) as (k, _):
        prefetch(builder, builder.gep(source.data, [builder.add(offset, k)]), locality=2)


def _transposed(builder, rows: list) -> list:
    """Transpose a square of vectors in log2(LANES) rounds; each swaps the off-diagonal halves of smaller squares."""
    width = LANES // 2
    while width:
        mixed = list(rows)
        for i in range(LANES):
            if i & width:
                continue
            upper, lower = rows[i], rows[i | width]
            first = [k if not k & width else (k ^ width) + LANES for k in range(LANES)]
            second = [k | width if not k & width else k + LANES for k in range(LANES)]
            mixed[i], mixed[i | width] = shuffle(builder, upper, lower, first), shuffle(builder, upper, lower, second)
        rows = mixed
        width //= 2
    return rows


@kernel
def gather(builder, source, width, columns, begin, end, target, t):
    """target[t:] = Σ_s y_s for the `width` elements y_s of `source` at columns[s] · width, begin ≤ s < end."""
    index = ir.IntType(64)
    for shifts, count in _strips(builder, width, (4, 1)):
        with shifts as (k, _):
            sums = [cgutils.alloca_once_value(builder, source.zero) for _ in range(count)]
            with cgutils.for_range_slice(builder, begin, end, integer(1), index) as (s, _):
                column = builder.sext(builder.load(builder.gep(columns.data, [s])), index)
                at = plus(builder, k, column, width)
                for v, total in enumerate(sums):
                    builder.store(builder.fadd(builder.load(total), source.load(builder.add(at, integer(v * LANES)))), total)
            for v, total in enumerate(sums):
                target.store(builder.load(total), builder.add(t, builder.add(k, integer(v * LANES))))


@kernel
def products(builder, source, width, offsets, o, shift, direction, d, target, t):
    """target[t + i] = y_i · direction for the `width` elements y_i of `source` at offsets[o + i] + shift, i < LANES.

    The sums of LANES rows are added up across the lanes together: fifteen additions of vectors, where a row at a time would
    take four each.
    """
    rows = [builder.add(_number(builder, offsets, o, integer(i)), shift) for i in range(LANES)]
    sums = [cgutils.alloca_once_value(builder, source.zero) for _ in range(LANES)]
    for shifts, count in _strips(builder, width, (4, 1)):
        with shifts as (k, _):
            for v in range(count):
                at = builder.add(k, integer(v * LANES))
                right = direction.load(builder.add(d, at))
                for row, total in zip(rows, sums, strict=True):
                    builder.store(fma(builder, source.load(builder.add(row, at)), right, builder.load(total)), total)
    target.store(_totals(builder, [builder.load(each) for each in sums]), t)


def _totals(builder, vectors: list):
    """The vector of the sums of LANES vectors: lane i holds that of vector i."""
    width = LANES // 2
    while width:
        here = [lane if not lane & width else lane + LANES for lane in range(LANES)]
        there = [lane ^ width if not lane & width else (lane ^ width) + LANES for lane in range(LANES)]
        pairs = zip(vectors[:width], vectors[width:], strict=True)
        vectors = [builder.fadd(shuffle(builder, a, b, here), shuffle(builder, a, b, there)) for a, b in pairs]
        width //= 2
    return vectors[0]


@kernel
def combine(builder, source, width, offsets, o, shift, n, factors, f, target, t):
    """target[t:] = Σ_i factors[f + i] y_i for the `width` elements y_i of `source` at offsets[o + i] + shift, i < n."""
    for shifts, count in _strips(builder, width, (8, 4, 1)):
        with shifts as (k, _):
            sums = [cgutils.alloca_once_value(builder, source.zero) for _ in range(count)]
            with cgutils.for_range(builder, n) as loop:
                everywhere = spread(builder, source.type, _number(builder, factors, f, loop.index))
                at = builder.add(builder.add(_number(builder, offsets, o, loop.index), shift), k)
                for v, total in enumerate(sums):
                    y = source.load(builder.add(at, integer(v * LANES)))
                    builder.store(fma(builder, y, everywhere, builder.load(total)), total)
            for v, total in enumerate(sums):
                target.store(builder.load(total), builder.add(t, builder.add(k, integer(v * LANES))))


@kernel
def outer(builder, source, offsets, o, n, a, b, scale, target, t, stride):
    """target[t + r stride + c] = s_a s_b Σ_i y_ia y_ib with a + r for a and b + c for b, r and c < LANES: a square of Σ y yᵀ.

    y_i are the elements of `source` from offsets[o + i] on, i < n, and s those of `scale`. Each row of the square is a vector
    of sums that stays in a register.
    """
    sums = [cgutils.alloca_once_value(builder, source.zero) for _ in range(LANES)]
    with cgutils.for_range(builder, n) as loop:
        row = _number(builder, offsets, o, loop.index)
        left, right = builder.add(row, a), source.load(builder.add(row, b))
        for r, total in enumerate(sums):
            y = spread(builder, source.type, _number(builder, source, left, integer(r)))
            builder.store(fma(builder, y, right, builder.load(total)), total)
    right = scale.load(b)
    for r, total in enumerate(sums):
        left = builder.fmul(spread(builder, source.type, _number(builder, scale, a, integer(r))), right)
        target.store(builder.fmul(left, builder.load(total)), plus(builder, t, r, stride))


def _number(builder, array, begin, index):
    """The single element of an array at begin + index."""
    return builder.load(builder.gep(array.data, [builder.add(begin, index)]))


def _strips(builder, width, counts: tuple[int, ...]) -> Iterator[tuple]:
    """Loops over the offsets of strips that cover `width` elements, first as many as fit of the widest, and their vectors."""
    begin = integer(0)
    for count in counts:
        strip = integer(count * LANES)
        end = builder.sub(width, builder.srem(width, strip))
        yield cgutils.for_range_slice(builder, begin, end, strip, ir.IntType(64)), count
        begin = end
