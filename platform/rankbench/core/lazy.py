"""Fields of a dataclass that may be given as a function, which is called when the field is first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_REQUIRED = object()


class Lazy(Generic[T]):
    """`field: Lazy[T] = Lazy()` is a required field; `Lazy(default)` has a default. A value of T must not be callable."""

    def __init__(self, default: object = _REQUIRED):
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object | None, owner: type) -> T:
        if instance is None:  # dataclasses ask for the default
            if self.default is _REQUIRED:
                raise AttributeError(self.name)
            return self.default  # type: ignore[return-value]
        value = instance.__dict__[self.name]
        if callable(value):
            value = instance.__dict__[self.name] = value()
        return value

    def __set__(self, instance: object, value: T | Callable[[], T]) -> None:
        instance.__dict__[self.name] = value
