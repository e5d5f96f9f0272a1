"""Vectors of LLVM in compiled code: a numba function made from instructions on LANES numbers at once.

Numba compiles loops over numbers and leaves it to LLVM whether they become loops over vectors. The kernels of `solvers/als` and
`kernels` have inner loops that must stay in registers, and therefore state their vectors themselves; these compile to those of
the processor. Arrays are flat and contiguous, offsets and strides count elements, and a "vector" is LANES consecutive elements.
"""
# LLVM's builder and values come without types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-untyped"

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 16  # elements of a vector


class Vectors:
    """Loads and stores of the vectors of one array."""

    def __init__(self, context, builder, array_type, array):
        self.builder = builder
        self.element = context.get_data_type(array_type.dtype)
        self.type = ir.VectorType(self.element, LANES)
        self.align = array_type.dtype.bitwidth // 8
        self.data = cgutils.create_struct_proxy(array_type)(context, builder, value=array).data

    @property
    def zero(self):
        return ir.Constant(self.type, None)

    def _at(self, offset):
        pointer = self.builder.gep(self.data, [offset])
        return self.builder.bitcast(pointer, self.type.as_pointer())

    def load(self, offset):
        return self.builder.load(self._at(offset), align=self.align, typ=self.type)

    def store(self, value, offset):
        self.builder.store(value, self._at(offset), align=self.align)


def plus(builder, offset, index, stride):
    return builder.add(offset, builder.mul(integer(index), stride) if isinstance(index, int) else builder.mul(index, stride))


def integer(value: int):
    return ir.Constant(ir.IntType(64), value)


def prefetch(builder, pointer, offset: int = 0, locality: int = 3):
    """Ask for the data at `pointer` + `offset` in bytes, to be read soon; a `locality` of 3 is all levels of the cache."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    shape = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0")
    address = builder.gep(builder.bitcast(pointer, byte), [integer(offset)])
    builder.call(function, [address, *(ir.Constant(number, value) for value in (0, locality, 1))])


def arrays(context, builder, signature, arguments) -> Iterator[Any]:
    """The arguments in order: arrays as Vectors, numbers as they are."""
    for kind, value in zip(signature.args, arguments, strict=True):
        yield Vectors(context, builder, kind, value) if isinstance(kind, types.Array) else value


def kernel(emit: Callable[..., None]):
    """Make a function for compiled code from `emit(builder, *arguments)`, whose arguments are those of `arrays`."""

    @wraps(emit)
    def typed(typingctx, *kinds):
        def code(context, builder, signature, arguments):
            emit(builder, *arrays(context, builder, signature, arguments))
            return context.get_dummy_value()

        return types.void(*kinds), code

    return intrinsic(typed)


def fma(builder, a, b, c):
    """a·b + c with a single rounding."""
    return builder.call(function(builder, "fma", a.type, 3), [a, b, c])


def total(builder, vector):
    """The sum of a vector's elements, in an order of the compiler's choice."""
    kind = vector.type
    shape = ir.FunctionType(kind.element, [kind.element, kind])
    add = cgutils.get_or_insert_function(builder.module, shape, f"llvm.vector.reduce.fadd.{suffix(kind)}")
    return builder.call(add, [ir.Constant(kind.element, 0.0), vector], fastmath=("reassoc",))


def function(builder, name: str, kind: ir.VectorType, n_arguments: int):
    """The LLVM intrinsic of that name for vectors."""
    shape = ir.FunctionType(kind, [kind] * n_arguments)
    return cgutils.get_or_insert_function(builder.module, shape, f"llvm.{name}.{suffix(kind)}")


def suffix(kind: ir.VectorType) -> str:
    return f"v{kind.count}{'f32' if isinstance(kind.element, ir.FloatType) else 'f64'}"


def spread(builder, kind: ir.VectorType, value):
    """A vector with the value in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return shuffle(builder, first, first, [0] * LANES)


def shuffle(builder, a, b, lanes: list[int]):
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [ir.Constant(ir.IntType(32), lane) for lane in lanes])
    return builder.shuffle_vector(a, b, mask)


class Numbers:
    """Arithmetic on vectors of one type in the code that is being built."""

    def __init__(self, builder, kind: ir.VectorType):
        self.builder, self.kind = builder, kind
        self.single = isinstance(kind.element, ir.FloatType)
        self.zero, self.one = self(0.0), self(1.0)

    def __call__(self, value: float):
        value = float(np.float32(value)) if self.single else value
        return ir.Constant(self.kind, [ir.Constant(self.kind.element, value)] * LANES)

    def where(self, comparison: str, x, y, then, otherwise):
        return self.builder.select(self.builder.fcmp_ordered(comparison, x, y), then, otherwise)

    def fma(self, a, b, c):
        return fma(self.builder, a, b, c)

    def exp(self, x):
        """exp(x): in float32 to 2e-7 of its value, with x cut to [−87, 88]."""
        builder = self.builder
        if not self.single:
            return builder.call(function(builder, "exp", self.kind, 1), [x])
        whole = ir.VectorType(ir.IntType(32), LANES)
        x = self.where("<", x, self(-87.0), self(-87.0), x)
        x = self.where(">", x, self(88.0), self(88.0), x)
        # x = n log 2 + r; log 2 is subtracted in two parts, the first of which n multiplies without rounding.
        n = builder.call(function(builder, "rint", self.kind, 1), [builder.fmul(x, self(1.4426950408889634))])
        r = self.fma(n, self(2.12194440e-4), self.fma(n, self(-0.693359375), x))
        # The minimax polynomial of exp on [−log 2 / 2, log 2 / 2] of the Cephes library.
        p = self(1.9875691500e-4)
        for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            p = self.fma(p, r, self(coefficient))
        p = builder.fadd(self.fma(p, builder.fmul(r, r), r), self.one)
        power = builder.add(builder.fptosi(n, whole), ir.Constant(whole, [ir.Constant(ir.IntType(32), 127)] * LANES))
        power = builder.shl(power, ir.Constant(whole, [ir.Constant(ir.IntType(32), 23)] * LANES))
        return builder.fmul(p, builder.bitcast(power, self.kind))

    def log_of_one_plus(self, y):
        """log(1 + y) for y in [0, 1]: in float32 by the series of 2 artanh(y / (2 + y)), to 1e-7 of its value."""
        builder = self.builder
        if not self.single:
            return builder.call(function(builder, "log", self.kind, 1), [builder.fadd(y, self.one)])
        z = builder.fdiv(y, builder.fadd(y, self(2.0)))
        square = builder.fmul(z, z)
        total = self(2 / 15)
        for power in (13, 11, 9, 7, 5, 3, 1):
            total = self.fma(total, square, self(2 / power))
        return builder.fmul(total, z)
