"""The commands for models on this machine: `ocrd models list|pull|path|rm|calibrate`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon import console
from daemon.commands import flags
from daemon.commands.flags import AsJson, Home, Quiet, Verbose

if TYPE_CHECKING:
    from pipeline.calibration import Calibration, RowCost
    from pipeline.model_files import Source
    from pipeline.presets import Preset
    from storage.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="A model of `ocrd models list`.")]


def list_models(home: Home = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List the models ocrd knows, and which are on disk.

    Any folder with a checkpoint of a known architecture can be read with as well: --model FOLDER.

    \b
    Examples:
      ocrd models list
      ocrd models list --json
    """
    from pipeline.presets import PRESETS

    settings = flags.settings(home=home)
    entries = [_entry(preset, settings) for preset in PRESETS.values()]
    if as_json:
        console.write_json(entries)
        return
    rows = [
        (
            str(entry["name"]), str(entry["state"]), console.size(float(entry["bytes"])), str(entry["mode"]) + "s",
            str(entry["licence"]), str(entry["about"]),
        )
        for entry in entries
    ]  # fmt: skip
    console.print_table(("Model", "On disk", "Size", "Reads", "Licence", "What it is"), rows, numbers=(2,))
    console.say("next: ocrd models pull NAME, then ocrd read FILE --engine vlm --model NAME")


def _entry(preset: Preset, settings: Settings) -> dict[str, Any]:
    """What `models list --json` tells of a model. `bytes`: on disk, else about what there is to fetch."""
    from pipeline import model_files
    from storage.errors import ModelMissingError

    folder, revision, size, repository = None, preset.revision, round(preset.size_gb * 1e9), preset.repository
    try:
        location = model_files.locate(preset.name, settings)
        folder, revision, size = str(location.folder), location.revision, location.size_bytes
        repository = location.preset.repository
        state = "yes" if repository else "built in"
    except ModelMissingError:
        state = "in part" if model_files.is_partly_pulled(preset, settings) else "no"
    return {
        "name": preset.name,
        "state": state,
        "folder": folder,
        "bytes": size,
        "repository": repository,
        "revision": revision,
        "architecture": preset.architecture,
        "mode": str(preset.mode),
        "licence": preset.licence,
        "about": preset.about,
        "note": preset.note,
    }


def pull(
    name: Name,
    repository: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Another conversion of the same model on the hub."),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="A commit, tag or branch of the repository.")
    ] = None,
    home: Home = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fetch a model from the hub, or go on fetching it.

    Needs the network; nothing else in ocrd does. The hub is huggingface.co, or what HF_ENDPOINT names. A later pull
    fetches again only if the hub has another commit.

    \b
    Examples:
      ocrd models pull glm-ocr
      ocrd models pull dots-ocr --repository mlx-community/dots.ocr-8bit
    """
    from pipeline import model_files, presets

    preset = presets.find(name)
    settings = flags.settings(home=home)

    def announce(source: Source) -> None:
        if not quiet:
            size, folder = console.size(source.size_bytes), console.escape_name(settings.models_path)
            console.say(f"fetching {source.repository} at {source.revision[:12]}, {size}, to {folder}")
            console.say(f"licence of the weights: {preset.licence}")

    location = model_files.pull(
        preset,
        settings,
        repository=repository,
        revision=revision,
        on_source=announce,
        show_progress=not quiet and console.is_terminal(sys.stderr),
    )
    if not quiet:
        console.say(f"{name} is in {console.escape_name(location.folder)}")
        console.say(f"next: ocrd read FILE --engine vlm --model {name}")


def path(name: Name, home: Home = None, verbose: Verbose = False) -> None:
    """Print the folder a model lies in.

    \b
    Example:
      ocrd models path tiny
    """
    from pipeline import model_files

    console.say(console.escape_name(model_files.locate(name, flags.settings(home=home)).folder))


def rm(name: Name, home: Home = None, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Delete a model that was fetched.

    \b
    Example:
      ocrd models rm glm-ocr
    """
    from pipeline import model_files

    freed = model_files.remove(name, flags.settings(home=home))
    if not quiet:
        console.say(f"{console.size(freed)} freed")


def calibrate(name: Name, home: Home = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Measure what a model's passes over several tokens cost here.

    And how they round. Done by itself at a model's first load. Measure again if the machine was busy then: nothing else
    should run now. How long drafts may be follows from the costs; which near ties are decided again, from the rounding.

    \b
    Examples:
      ocrd models calibrate tiny
      ocrd models calibrate glm-ocr --json
    """
    from dataclasses import asdict

    from pipeline import model_files, opening

    settings = flags.settings(home=home)
    loaded, fingerprint = opening.load(settings, model_files.locate(name, settings))
    measured = opening.calibrate(settings, loaded, fingerprint, again=True)
    assert measured is not None  # as it is taken again
    opening.forget_checks(settings)
    if as_json:
        console.write_json(asdict(measured) | {"model": name})
        return
    console.print_table(
        ("Rows", "Cost", "Logits differ by", "Same first choices"), _rows(measured), numbers=(0, 1, 2)
    )
    equal = f"blocks of up to {measured.equal_upto} rows equal single rows bit for bit"
    console.say(f"one row takes {measured.single_ms:.1f} ms; {equal}")
    console.say(
        f"near ties of less than {measured.tau:.2g} are decided again"
        if measured.tau
        else "no block rounds otherwise"
    )


def _rows(measured: Calibration) -> list[tuple[str, ...]]:
    def difference(row: RowCost) -> tuple[str, str]:
        if row.equal is None:
            return "", ""
        return "0" if row.equal else f"{row.logit:.1e}", "yes" if row.same_ids else "no"

    return [(str(row.rows), f"{row.cost:.2f}", *difference(row)) for row in measured.rows]


def add_to(app: typer.Typer) -> None:
    """Add `models` with its commands."""
    group = typer.Typer(
        help="Vision-language models: list, fetch, find, delete.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("list")(list_models)
    for command in (pull, path, rm, calibrate):
        group.command()(command)
    app.add_typer(group, name="models")
