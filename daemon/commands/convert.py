"""The commands that convert a checkpoint of dots.ocr: `ocrd convert …`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon import console
from daemon.commands import flags
from daemon.commands.flags import AsJson, Home, Quiet, Verbose

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.convert.plan import Plan
    from pipeline.convert.to_mlx import Converted
    from storage.settings import Settings

Src = Annotated[
    str,
    typer.Argument(
        metavar="SRC", help="A folder with a checkpoint of dots.ocr, or a model's name (dots-ocr)."
    ),
]


def mlx(
    src: Src,
    dst: Annotated[Path, typer.Argument(metavar="DST", help="The folder to make.")],
    quantize: Annotated[
        int | None, typer.Option(metavar="4|8", help="Bits a weight of the language model takes.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="bfloat16|float16", help="What is not quantised is stored as this; else as it is."
        ),
    ] = None,
    quantize_vision: Annotated[
        bool, typer.Option("--quantize-vision", help="Quantise the vision tower too: boxes shift by it.")
    ] = False,
    revision: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="The source's commit, for the manifest, where it is not known."),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert a checkpoint to a folder that MLX reads fastest.

    Weights are read and written one block at a time. An interrupted conversion goes on where it stopped when the same
    command is given again; DST appears when all is done, with a manifest of hashes, settings and versions. Code in SRC
    is never run.

    \b
    Examples:
      ocrd convert mlx ./dots.ocr ./dots.ocr-bf16 --dtype bfloat16
      ocrd convert mlx ./dots.ocr ./dots.ocr-8bit --quantize 8
      ocrd read page.png --model ./dots.ocr-8bit
    """
    from dataclasses import asdict

    from pipeline.convert import to_mlx

    flags.require_one_of(quantize, to_mlx.BITS, "--quantize")
    flags.require_one_of(dtype, to_mlx.DTYPES, "--dtype")
    if quantize_vision and quantize is None:
        raise typer.BadParameter("says nothing without --quantize", param_hint="--quantize-vision")
    plan, found_revision = _examine(src, flags.settings(home=home))
    options = to_mlx.Options(dtype, quantize, quantize_vision, revision or found_revision)

    def tell(number: int, count: int, name: str) -> None:
        if not quiet and not as_json and count > 1:
            console.remark(f"{number} of {count}: {name}")

    made = to_mlx.convert(plan, dst.expanduser(), options, now=time.time(), on_file=tell)
    if as_json:
        console.write_json(asdict(made) | {"folder": str(made.folder)})
    elif not quiet:
        _say_converted(made, src, dst)


def _say_converted(made: Converted, src: str, dst: Path) -> None:
    what = "is there already" if made.existed else "was written"
    console.say(f"{console.escape_name(dst)} {what}: {console.size(made.size_bytes)} of weights")
    if made.quantised:
        console.say(f"{console.plural(made.quantised, 'layer')} quantised")
    folder = str(dst) if "/" in str(dst) else f"./{dst}"
    console.say(
        f"next: ocrd convert check {console.escape_name(src)} {console.escape_name(dst)} --image FILE"
    )
    console.say(f"      ocrd read FILE --engine vlm --model {console.escape_name(folder)}")


def vision_weights(
    src: Src,
    out: Annotated[Path, typer.Argument(metavar="OUT.npz", help="The file to write.")],
    dtype: Annotated[
        str, typer.Option(metavar="float32|float16", help="float32 is exact; numpy has no bfloat16.")
    ] = "float32",
    home: Home = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write the vision tower and projector alone, under stable names.

    For what is built on exported weights: vision.patch_embed.proj.weight, vision.blocks.N.attn.qkv.weight,
    vision.blocks.N.mlp.fc1.weight …, projector.weight, projector.bias; in PyTorch's layout. Every tensor of SRC is
    either in OUT.npz or counted as left out (--json names them).

    \b
    Examples:
      ocrd convert vision-weights ./dots.ocr vision.npz
      ocrd convert vision-weights tiny vision.npz --json
    """
    from dataclasses import asdict

    from pipeline.convert import vision_weights as weights

    flags.require_one_of(dtype, ("float32", "float16"), "--dtype")
    plan, _ = _examine(src, flags.settings(home=home))
    made = weights.write(plan, out.expanduser(), "float32" if dtype == "float32" else "float16")
    if as_json:
        console.write_json(asdict(made) | {"path": str(out)})
    elif not quiet:
        console.say(
            f"{console.plural(made.tensors, 'tensor')} written, {console.size(made.size_bytes)}, {made.dtype}; "
            f"{len(made.left_out)} of the checkpoint's others left out"
        )
        fits = (
            "as the language model takes"
            if made.projector_out == made.hidden
            else "NOT as the language model takes"
        )
        console.say(f"the projector gives {made.projector_out} columns, {fits}")


def check(
    src: Src,
    dst: Annotated[Path, typer.Argument(metavar="DST", help="The converted folder.")],
    image: Annotated[
        Path,
        typer.Option(
            "--image", metavar="FILE", help="What is read by both: a picture or a PDF's first page."
        ),
    ],
    max_pixels: Annotated[
        int | None, typer.Option(metavar="N", min=784, help="Scale the page down to this many (200,704).")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare a converted checkpoint with its source, stage by stage.

    SRC is read in PyTorch (extra `convert`), DST in MLX, both in float32: patch embedding, every block, merger, every
    layer, logits. Exits with 1 where a stage is further off than its weights explain, or the manifest names others.

    \b
    Examples:
      ocrd convert check ./dots.ocr ./dots.ocr-8bit --image page.png
      ocrd convert check tiny ./tiny-4bit --image samples/letter-scan.pdf --json
    """
    from daemon import convert_view
    from pipeline.convert import check as checking
    from storage.errors import ExitCode

    settings = flags.settings(home=home)
    plan, _ = _examine(src, settings)
    page = _page(image.expanduser(), settings.dpi, max_pixels or checking.MAX_PIXELS)
    result = checking.check(plan, dst.expanduser().absolute(), page, trusted=settings.trusted_models)
    if as_json:
        console.write_json(result.as_json())
    elif not quiet:
        convert_view.show(result)
    if not result.is_good:
        raise typer.Exit(ExitCode.NO_MATCH)


def coreml(
    src: Src,
    out: Annotated[Path, typer.Argument(metavar="OUT.mlpackage", help="The package to make.")],
    precision: Annotated[
        str, typer.Option(metavar="float32|float16", help="What the program computes in.")
    ] = "float16",
    compute_units: Annotated[
        str,
        typer.Option(
            metavar="all|cpu-and-gpu|cpu-and-ne|cpu-only", help="Where the package runs when pages are read."
        ),
    ] = "all",
    shapes: Annotated[
        str,
        typer.Option(
            metavar="fixed|enumerated", help="One page size (--paper), or A8 to A3, Letter and the largest."
        ),
    ] = "enumerated",
    paper: Annotated[
        str, typer.Option(metavar="NAME", help="With --shapes fixed: a4, letter, a3, a5, a6, a7 or a8.")
    ] = "a4",
    quantize: Annotated[
        str | None, typer.Option(metavar="int8|int4-palettized", help="Store weights in 8 or 4 bits.")
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            metavar="ios18|ios17",
            help="ios18 (macOS 15): attention is one operator; ios17 (macOS 14): several.",
        ),
    ] = "ios18",
    proof: Annotated[
        bool,
        typer.Option("--proof/--no-proof", help="Run the saved program against the checkpoint in PyTorch."),
    ] = True,
    home: Home = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert the vision encoder to a Core ML package, and prove it.

    Works on Linux too; the package then runs on a Mac (settings vision_backend and vision_package). A page is padded
    to the next larger size, the padding masked, so that its features are those of the page alone. The proof takes a
    small made-up page through the saved program, op by op, and through PyTorch; it exits with 1 where float32 differs
    by more than 0.006, or 1.1e-5 in the mean. Needs the extra `convert`.

    \b
    Examples:
      ocrd convert coreml ./dots.ocr vision.mlpackage
      ocrd convert coreml ./dots.ocr vision.mlpackage --quantize int8 --compute-units cpu-and-ne
      ocrd convert coreml tiny tiny.mlpackage --precision float32 --json
    """
    from daemon import coreml_view
    from pipeline.convert import coreml as converting
    from pipeline.convert import coreml_package, extra, page_shapes
    from storage.errors import ExitCode

    for value, known, option in (
        (precision, converting.Precision, "--precision"),
        (compute_units, coreml_package.ComputeUnits, "--compute-units"),
        (shapes, page_shapes.Shapes, "--shapes"),
        (paper, page_shapes.PAPERS, "--paper"),
        (quantize, converting.Compression, "--quantize"),
        (target, converting.Target, "--target"),
    ):
        flags.require_one_of(value, tuple(map(str, known)), option)
    options = converting.Options(
        precision=converting.Precision(precision),
        compute_units=coreml_package.ComputeUnits(compute_units),
        shapes=page_shapes.Shapes(shapes),
        compression=converting.Compression(quantize) if quantize else None,
        target=converting.Target(target),
        paper=paper,
    )
    extra.require("torch", "coremltools")
    plan, _ = _examine(src, flags.settings(home=home))
    made = converting.convert(plan, out.expanduser(), options)
    proved = None
    if proof:
        from pipeline.convert import mil_proof

        proved = mil_proof.prove(made.package, plan)
    if as_json:
        console.write_json(coreml_view.as_json(made, options, proved))
    elif not quiet:
        coreml_view.show(made, options, proved)
    if proved is not None and options.is_exact and not proved.holds:
        raise typer.Exit(ExitCode.NO_MATCH)


def _page(path: Path, dpi: int, max_pixels: int) -> Image.Image:
    """The first page of a file as RGB. Raises: the input errors of `storage.errors`."""
    from pipeline.rasterise import rasterise
    from pipeline.source import open_source

    with open_source(path) as source, source.page(1) as page:
        return rasterise(page, dpi=dpi, max_pixels=max_pixels).image.convert("RGB")


def _examine(src: str, settings: Settings) -> tuple[Plan, str | None]:
    """The checkpoint, checked tensor by tensor, and the commit it was pulled at. Raises: as `plan.examine`."""
    from pipeline import model_files
    from pipeline.convert import plan

    named = src if model_files.is_folder_name(src) or not Path(src).is_dir() else f"./{src}"
    location = model_files.locate(named, settings)
    return plan.examine(location.folder, trusted=settings.trusted_models), location.revision


def add_to(app: typer.Typer) -> None:
    """Add `convert` with its commands."""
    group = typer.Typer(
        help="A dots.ocr checkpoint to MLX or Core ML, and proof that nothing changed.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command in (mlx, vision_weights, check, coreml):
        group.command()(command)
    app.add_typer(group, name="convert")
