"""One thread at a time in PDFium, which shares unguarded state between all documents of a process.

Two threads in it do not always crash: its count of nested objects can be left high, after which every file opened in
that process loses streams, and with them pictures, form fields and the meaning of fonts, without any error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_LOCK = threading.RLock()


def in_pdfium(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """`function`, waiting until no other thread is in a function so marked; such functions may call each other."""

    @wraps(function)
    def alone(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        with _LOCK:
            return function(*arguments, **options)

    return alone
