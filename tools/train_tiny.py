"""Train, export, evaluate and check the tiny model: `python -m tools.train_tiny train --out DIR`.

Needs the extra `train` (torch). Twenty steps, from text to a checkpoint that loads:

    python -m tools.train_tiny train --out /tmp/tiny --steps 20

See docs/tiny-model.md for what the shipped checkpoint was trained with and how well it reads.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.tiny import corpus, fonts, tokenizer
from tools.tiny.pictures import Sources
from tools.tiny.recipe import RECIPES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, or 1 where a check failed or something is missing."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        return given.command(given)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("torch is not installed: `uv sync --extra train`, or pip install torch", file=sys.stderr)
    except (LookupError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools.train_tiny", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    train = commands.add_parser(
        "train", help="text to checkpoint: corpus, tokenizer, training, export, evaluation"
    )
    train.set_defaults(command=_train)
    train.add_argument(
        "--out", type=Path, required=True, help="folder of the run; the checkpoint is OUT/model"
    )
    train.add_argument("--recipe", choices=RECIPES, default="shipped")
    length = train.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="how many (default: the recipe's)")
    length.add_argument(
        "--minutes", type=float, help="as many steps as will take about so long on this machine"
    )
    train.add_argument("--seed", type=int, default=1)
    train.add_argument("--resume", action="store_true", help="go on from OUT/state.pt")
    train.add_argument("--processes", type=int, default=1, help="that compute; 1 or 2 give the same weights")
    train.add_argument("--renderers", type=int, default=1, help="that draw ahead for each of them; 0: none")
    train.add_argument(
        "--threads", type=int, default=1, help="of torch; more than 1 changes how sums are rounded"
    )
    train.add_argument("--device", default="cpu", help="cpu, cuda or mps (only tried on cpu)")
    train.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    train.add_argument("--half", action="store_true", help="store the weights in float16")

    evaluate = commands.add_parser("evaluate", help="error rates of an exported checkpoint as JSON")
    evaluate.set_defaults(command=_evaluate)
    evaluate.add_argument("model", type=Path)
    evaluate.add_argument("--prompt", default="", help="what to ask (default: nothing, as ocrd does)")
    evaluate.add_argument("--small", action="store_true", help="fewer pictures")

    export = commands.add_parser("export", help="the averaged weights of OUT/state.pt as a checkpoint")
    export.set_defaults(command=_export)
    export.add_argument("out", type=Path)
    export.add_argument("model", type=Path)
    export.add_argument("--half", action="store_true", help="store the weights in float16")

    parity = commands.add_parser("parity", help="an exported checkpoint in torch and in mlx-vlm")
    parity.set_defaults(command=_parity)
    parity.add_argument("model", type=Path)
    parity.add_argument("--prompt", default=tokenizer.PROMPTS[0])

    show = commands.add_parser("sources", help="what text and fonts this machine has")
    show.set_defaults(command=_sources_command)
    for each in (train, evaluate, parity, show):
        each.add_argument("--corpus", choices=("auto", "debian", "builtin"), default="auto")
        each.add_argument("--all-fonts", action="store_true", help="not those of the recipe first")
    return parser


def _sources(given: argparse.Namespace, recipe: str = "shipped") -> Sources:
    return Sources(corpus.gather(given.corpus), fonts.find(named=not given.all_fonts), RECIPES[recipe].looks)


def _train(given: argparse.Namespace) -> int:
    from tools.tiny import run

    sources = _sources(given, given.recipe)
    plan = run.plan(
        RECIPES[given.recipe], sources, out=given.out, seed=given.seed, steps=given.steps, minutes=given.minutes,
        resume=given.resume, processes=given.processes, renderers=given.renderers, threads=given.threads,
        device=given.device, precision=given.precision,
    )  # fmt: skip
    _print(run.carry_out(plan, resume=given.resume, half=given.half))
    return 0


def _evaluate(given: argparse.Namespace) -> int:
    from tools.tiny import evaluation, exporting

    sources = _sources(given)
    encoder = tokenizer.PromptEncoder((given.model / "tokenizer.json").read_text(encoding="utf-8"))
    sizes = evaluation.SMALL if given.small else evaluation.FULL
    rates = evaluation.table(exporting.load(given.model), sources, encoder.ids(given.prompt), sizes)
    body = {"prompt": given.prompt, **_described(sources)}
    _print({**body, "rates": {name: rate.as_dict() for name, rate in rates.items()}})
    return 0


def _export(given: argparse.Namespace) -> int:
    from tools.tiny import run

    _print({"model": str(run.export(given.out, given.model, half=given.half))})
    return 0


def _parity(given: argparse.Namespace) -> int:
    from tools.tiny import parity

    found = parity.compare(given.model, _sources(given), given.prompt)
    _print(found.as_dict())
    return 0 if found.holds else 1


def _sources_command(given: argparse.Namespace) -> int:
    _print(_described(_sources(given)))
    return 0


def _described(sources: Sources) -> dict[str, Any]:
    texts, found = sources.corpus, sources.fonts
    return {
        "corpus": {
            "source": texts.source, "fingerprint": texts.fingerprint, "train": len(texts.train),
            "held": len(texts.held), "words": len(texts.words),
        },
        "fonts": {
            "fingerprint": found.fingerprint, "regular": len(found.regular), "bold": len(found.bold),
            "italic": len(found.italic), "held": len(found.held),
        },
    }  # fmt: skip


def _print(body: dict[str, Any]) -> None:
    print(json.dumps(body, indent=1))


if __name__ == "__main__":
    raise SystemExit(main())
