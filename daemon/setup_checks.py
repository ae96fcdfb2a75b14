"""Whether this installation can read pages: versions, engine, language data, model, the device MLX computes on."""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from daemon import console
from daemon.diagnosis import Level, Result

if TYPE_CHECKING:
    from storage.settings import Settings

LEAST_SQLITE = (3, 37, 0)  # RETURNING, and what sqlite-utils makes
DEVICE_S = 120.0
_PACKAGES = ("pypdfium2", "tesserocr", "rapidocr", "watchdog", "sqlite-utils", "mlx", "mlx-vlm")
_DEVICE = "import mlx.core as mx; mx.eval(mx.ones(8) + 1); print(mx.default_device())"


def versions(settings: Settings) -> Iterator[Result]:
    """Ours, Python's, SQLite's and the libraries'."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    own = _version("ocrd-mlx") or "unknown"
    yield Result("versions", Level.OK, f"ocrd {own}, Python {platform.python_version()}, {system}")
    found = {name: _version(name) for name in _PACKAGES}
    shown = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    yield Result("versions", Level.OK, shown)
    yield from _sqlite_version(sqlite3.sqlite_version_info)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sqlite_version(number: tuple[int, ...]) -> Iterator[Result]:
    shown = "SQLite " + ".".join(map(str, number))
    with contextlib.closing(sqlite3.connect(":memory:")) as conn:
        options = {row[0] for row in conn.execute("PRAGMA compile_options")}
        try:
            conn.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
            has_fts5 = True
        except sqlite3.OperationalError:
            has_fts5 = False
    if number < LEAST_SQLITE:
        least = ".".join(map(str, LEAST_SQLITE))
        yield Result(
            "sqlite", Level.FAULT, f"{shown} is too old", f"use a Python with SQLite {least} or newer"
        )
    elif not has_fts5:
        yield Result(
            "sqlite", Level.FAULT, f"{shown} has no FTS5", "use a Python built with full-text search (FTS5)"
        )
    elif "THREADSAFE=0" in options:
        yield Result("sqlite", Level.FAULT, f"{shown} is not thread-safe", "use another Python")
    else:
        yield Result("sqlite", Level.OK, f"{shown} with FTS5")


def engine(settings: Settings) -> Iterator[Result]:
    """The engine there is, and what it needs: language data, libraries, a model."""
    from pipeline.engines import registry, tessdata

    name, why = registry.resolve(settings.engine, settings)
    if not registry.installed(name):
        yield Result(
            "engine", Level.FAULT, f"{name} ({why}) is not installed", "choose another with --engine"
        )
        return
    yield Result("engine", Level.OK, f"{name} ({why})")
    if name in ("classic", "tesseract"):
        places = tessdata.folders([settings.tessdata, settings.home / "tessdata"], os.environ)
        with tessdata.as_one_folder(settings.languages, places):
            yield Result("languages", Level.OK, "language data for " + ", ".join(settings.languages))
    if name == "classic" and not registry.installed("rapidocr"):
        remedy = "install the package rapidocr"
        yield Result(
            "engine", Level.WARNING, "RapidOCR is missing: doubtful lines are not read again", remedy
        )


def model(settings: Settings) -> Iterator[Result]:
    """The model's files, and the device MLX would compute on."""
    from pipeline import blas, checkpoint, model_files

    if settings.model is None:
        yield Result("model", Level.OK, "none is set")
        return
    found = model_files.locate(settings.model, settings)
    whole = checkpoint.inspect(found.folder, trusted=settings.trusted_models)
    yield Result("model", Level.OK, f"{found.preset.name}, {console.size(whole.size_bytes)}: {found.folder}")
    yield mlx_device()
    if (hint := blas.hint()) is not None:
        about, _, remedy = hint.partition("; ")
        yield Result("mlx", Level.WARNING, about, remedy)


def mlx_device(code: str = _DEVICE) -> Result:
    """The device, by a process of its own: a broken driver ends that one only."""
    from pipeline import blas

    blas.preload()
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=DEVICE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Result("mlx", Level.FAULT, f"MLX did not answer for {DEVICE_S:g} s", "restart the computer")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Result(
            "mlx", Level.FAULT, f"MLX does not compute: {last}", "install ocrd again, or use --engine classic"
        )
    return Result("mlx", Level.OK, f"MLX computes on {done.stdout.strip()}")
