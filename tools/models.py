"""Writes the tables of `docs/models.md` (with cog): the presets and their prompts."""

from __future__ import annotations

from reference import cell

from pipeline.presets import PRESETS, UNPINNED, Preset


def presets() -> str:
    """Each preset: what it is, where it comes from, licence, size."""
    rows = ["| name | what it is | from | licence of the weights | size |", "|---|---|---|---|--:|"]
    for preset in PRESETS.values():
        note = f". {preset.note[:1].upper()}{preset.note[1:]}" if preset.note else ""
        rows.append(
            f"| `{preset.name}` | {cell(preset.about + note)} | {_origin(preset)} | {cell(preset.licence)} "
            f"| {preset.size_gb:g} GB |"
        )
    return "\n".join(rows)


def _origin(preset: Preset) -> str:
    if preset.repository is None:
        return "ships with ocrd"
    pinned = "" if preset.revision == UNPINNED else f" at `{(preset.revision or '')[:12]}`"
    return f"`{preset.repository}`{pinned}"


def reading() -> str:
    """How each preset reads: what is shown to the model, what it answers, when it stops."""
    rows = [
        "| name | reads | dpi | pixels | answer | tokens | ends at | repeats banned |",
        "|---|---|--:|---|---|--:|---|---|",
    ]
    for preset in PRESETS.values():
        ban = preset.ngram_ban
        exempt = f", but {' '.join(f'`{token}`' for token in ban.exempt)}" if ban and ban.exempt else ""
        rows.append(
            f"| `{preset.name}` | {preset.mode}s | {preset.dpi} | {preset.min_pixels:,} to {preset.max_pixels:,} "
            f"| {preset.output} | {preset.max_tokens:,} "
            f"| {cell(', '.join(f'`{text}`' for text in preset.stop_strings)) or 'its stop ids'} "
            f"| {f'{ban.size} tokens within {ban.window}{exempt}' if ban else ''} |"
        )
    return "\n".join(rows)


def prompts() -> str:
    """Each prompt: where it is used, the id that a page keeps, its first words."""
    rows = ["| model | task | id | text |", "|---|---|---|---|"]
    for preset in PRESETS.values():
        for task, prompt in preset.prompts.items():
            first = prompt.text.partition("\n")[0]
            more = " …" if len(first) > 60 or prompt.text.strip() != first else ""
            shown = f"`{cell(first[:60])}`{more}" if first else "(empty)"
            default = " (default)" if task is preset.task else ""
            rows.append(f"| `{preset.name}` | {task}{default} | `{prompt.reference}` | {shown} |")
    return "\n".join(rows)
