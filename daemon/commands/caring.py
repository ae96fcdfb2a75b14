"""The commands that look after an installation: verify, doctor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon import console
from daemon.commands import flags
from daemon.commands.flags import AsJson, Home, Quiet, Verbose
from storage.errors import ExitCode

if TYPE_CHECKING:
    from storage.verify import Finding


def verify(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Only these files, and folders with all below."),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Write sidecars and indexes anew where they differ; edits in them are lost."
        ),
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare index, sidecars and originals, by their hashes.

    Originals are only looked at. Sidecars are compared with what the database says, all but their provenance.
    Exits with 1 where something differs and was not repaired, or nothing was read of a PATH.

    \b
    Examples:
      ocrd verify
      ocrd verify ~/Scans --json
      ocrd verify --repair
    """
    from dataclasses import asdict

    from daemon import verifying

    def tell(finding: Finding) -> None:
        console.say(console.escape_name(f"{finding.path}: {finding.message}"))

    settings = flags.settings(home=home)
    flags.require_library(settings)
    silent = as_json or quiet
    report = verifying.run(
        settings, flags.absolute(paths or []), repair=repair, on_finding=None if silent else tell
    )
    if as_json:
        console.write_json(
            {
                "files": report.files,
                "findings": [
                    {
                        name: value
                        for name, value in asdict(finding).items()
                        if name in ("fault", "path", "message")
                    }
                    | {"repaired": finding in report.repaired}
                    for finding in report.findings
                ],
            }
        )
    elif not quiet:
        about = f"{console.plural(report.files, 'file')} verified"
        told = f"{console.plural(len(report.findings), 'difference')}, {len(report.repaired)} repaired"
        console.say(f"{about}: {told if report.findings else 'all agrees'}")
    for path in report.unread:
        console.remark(f"nothing was read of {os.fsdecode(path)}. See `ocrd status`")
    raise typer.Exit(ExitCode.OK if report.is_well and not report.unread else ExitCode.NO_MATCH)


def doctor(home: Home = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Examine installation, home and database; say what to do.

    Exits with 1 where something does not work. Warnings do not count.

    \b
    Examples:
      ocrd doctor
      ocrd doctor --json | jq '.[] | select(.level != "ok")'
    """
    from dataclasses import asdict

    from daemon import doctor as examination
    from daemon.diagnosis import Level

    marks = {Level.OK: "ok     ", Level.WARNING: "warning", Level.FAULT: "FAULT  "}
    results = []
    for result in examination.examine(flags.settings(home=home)):
        results.append(result)
        if not as_json:
            console.say(console.escape_name(f"{marks[result.level]} {result.check}: {result.message}"))
            if result.remedy:
                console.say(console.escape_name(f"        {result.remedy[:1].upper()}{result.remedy[1:]}"))
    if as_json:
        console.write_json([asdict(result) for result in results])
    faulty = any(result.level is Level.FAULT for result in results)
    raise typer.Exit(ExitCode.NO_MATCH if faulty else ExitCode.OK)
