"""The commands for stored vision features: `ocrd cache stats|prune|clear`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from daemon import console
from daemon.commands import flags
from daemon.commands.flags import AsJson, Home, Quiet, Verbose

if TYPE_CHECKING:
    from storage.features import CacheStats, FeatureStore
    from storage.settings import Settings


def stats(home: Home = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show what the stored vision features take and save.

    A page or region read again with the same model takes its features from here: the vision tower does not run.

    \b
    Examples:
      ocrd cache stats
      ocrd cache stats --json | jq .bytes
    """
    from dataclasses import asdict

    settings = flags.settings(home=home)
    found = _held(settings)
    if as_json:
        console.write_json(asdict(found) | {"folder": str(settings.features_path)})
        return
    console.say(
        f"{console.plural(found.files, 'picture')}, {console.size(found.bytes)} of {console.size(found.budget_bytes)}"
    )
    for model, count in sorted(found.models.items()):
        console.say(f"  {console.escape_name(model)}: {console.size(count)}")
    counted = found.counters
    console.say(
        f"since the store was made: {counted.hits:,} hits, {counted.misses:,} misses, {counted.stored:,} stored, "
        f"{counted.evicted:,} deleted for space or age, {counted.torn + counted.foreign:,} damaged"
    )


def prune(
    older_than: Annotated[
        str, typer.Option(metavar="WHEN", help="Last used before: 2026-01-31, 12h, 7d, 3w.")
    ] = "30d",
    home: Home = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Delete features that were not used for long.

    The store keeps to `features_gb` and to a tenth of the free disk by itself; this makes it smaller at once.

    \b
    Examples:
      ocrd cache prune
      ocrd cache prune --older-than 7d
    """
    moment = flags.moment(older_than, time.time(), option="--older-than")
    _delete(flags.settings(home=home), float("inf") if moment is None else moment, quiet)


def clear(home: Home = None, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Delete all stored features.

    \b
    Example:
      ocrd cache clear
    """
    _delete(flags.settings(home=home), float("inf"), quiet)


def _store(settings: Settings) -> FeatureStore | None:
    """The store; None where no page was read with a model yet: looking makes no folder."""
    from storage.features import FeatureStore

    folder = settings.features_path
    return FeatureStore(folder, settings.features_bytes) if folder.is_dir() else None


def _held(settings: Settings) -> CacheStats:
    from storage.features import CacheStats

    store = _store(settings)
    return CacheStats(0, 0, settings.features_bytes, {}) if store is None else store.stats()


def _delete(settings: Settings, older_than: float, quiet: bool) -> None:
    store, count, before = _store(settings), 0, _held(settings).bytes
    if store is not None:
        count = store.prune(older_than)
        store.close()
    if not quiet:
        freed = before - _held(settings).bytes
        console.say(f"{console.plural(count, 'picture')} deleted, {console.size(freed)} freed")


def add_to(app: typer.Typer) -> None:
    """Add `cache` with its commands."""
    group = typer.Typer(
        help="Vision features kept on disk: how much, and delete.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command in (stats, prune, clear):
        group.command()(command)
    app.add_typer(group, name="cache")
