"""The tree, the import names and the cost of starting: what everything else relies on."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("pipeline", "daemon", "storage")
# What the command line must not pay for before it knows what it is asked to do.
HEAVY = (
    "pandas",
    "sqlite_utils",
    "PIL",
    "pypdfium2",
    "mlx",
    "mlx_vlm",
    "numpy",
    "watchdog",
    "tesserocr",
    "rapidocr",
    "rich",
    "psutil",
    "pydantic",
)


@pytest.mark.parametrize("name", PACKAGES)
def test_no_other_distribution_owns_our_import_names(name: str) -> None:
    # python-daemon, for one, ships a package `daemon`: beside it, ours would not be found.
    # (An editable install, as `uv sync` makes it, owns no file; a wheel does.)
    assert set(importlib.metadata.packages_distributions().get(name, [])) <= {"ocrd-mlx"}


@pytest.mark.parametrize("name", PACKAGES)
def test_import_finds_this_checkout(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).parent == ROOT / name


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_are_typed_and_say_what_they_are_for(name: str) -> None:
    assert (ROOT / name / "py.typed").exists()
    assert (ROOT / name / "__init__.py").read_text(encoding="utf-8").startswith('"""')


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "pipeline", "daemon", "storage", "tests", "launchd", "README.md", "LICENSE"]
)
def test_top_level_is_what_its_owner_asked_for(name: str) -> None:
    assert (ROOT / name).exists()


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_starting_the_command_line_imports_nothing_heavy() -> None:
    assert modules_after("import daemon.cli") & set(HEAVY) == set()


def test_running_a_command_imports_nothing_heavy(tmp_path: Path) -> None:
    # What the parser imports to check values counts as well: typer 0.29 brings pydantic, 0.2 s.
    words = ["ocrd", "config", "--json", "--dpi", "300", "--home", str(tmp_path)]
    run = f"import sys\nsys.argv = {words!r}\nfrom daemon.cli import main\n"
    assert modules_after(run + "try:\n    main()\nexcept SystemExit:\n    pass") & set(HEAVY) == set()


@pytest.mark.parametrize("module", ["storage.status", "storage.index", "storage.database"])
def test_looking_into_the_library_imports_nothing_heavy(module: str) -> None:
    # `import sqlite_utils` takes 1.5 s where pandas is installed, and mlx-vlm brings pandas.
    assert modules_after(f"import {module}") & set(HEAVY) == set()


def test_samples_are_small_and_there() -> None:
    samples = {path.name: path.stat().st_size for path in (ROOT / "samples").iterdir()}
    assert {"paper.pdf", "letter-scan.pdf", "receipt-photo.jpg"} <= set(samples)
    assert all(0 < samples[name] < 500_000 for name in ("paper.pdf", "letter-scan.pdf", "receipt-photo.jpg"))


@pytest.mark.slow
def test_help_costs_little_more_than_importing_the_parser_it_is_written_with() -> None:
    """In processor time. On a slow machine both take longer, and on a busy one; their proportion stays."""
    import resource

    def spent_s() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def cost_s(*command: str | Path) -> float:
        before = spent_s()
        subprocess.run(command, capture_output=True, check=True)
        return spent_s() - before

    took = [
        (cost_s(Path(sys.executable).parent / "ocrd", "--help"), cost_s(sys.executable, "-c", "import typer"))
        for _ in range(5)
    ]
    ours, parsers = map(min, zip(*took, strict=True))
    assert ours < 2.5 * parsers
