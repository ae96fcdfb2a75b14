"""The training of the tiny model: text, pictures, labels, ids; with torch also learning, resuming, exporting."""

import dataclasses
import importlib.util
import json
import string
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.presets import TINY_FOLDER
from tools import train_tiny
from tools.tiny import (
    batches,
    charset,
    corpus,
    drawing,
    fonts,
    packing,
    phrases,
    pictures,
    released,
    tokenizer,
)
from tools.tiny.corpus import Corpus
from tools.tiny.fonts import PILLOW, FontSet
from tools.tiny.pictures import Request, Sources
from tools.tiny.recipe import RECIPES, SHIPPED, TILE_PX, WIDE, Kind, Looks, Phase, Recipe, Shape

WORDS = "the harbour master signed for eleven crates of (salt) & 3 barrels, No. 42; paid $1,204.50 by noon"
HELD = "evening ferries left the quay at half past six, and the lamps along the wall were lit one by one."
CORPUS = Corpus("test", f"{WORDS} " * 40, f"{HELD} " * 40, tuple(WORDS.split()))
FONTS = FontSet(*[(PILLOW,)] * 5)
SOURCES = Sources(CORPUS, FONTS, SHIPPED.looks)

seeds = st.integers(0, 1 << 30)
kinds = st.sampled_from(list(Kind))


def request_of(kind: Kind, **more: Any) -> Request:
    size = {Kind.LINE: (252, 28), Kind.BLOCK: (224, 112), Kind.PAGE: (336, 364)}[kind]
    return Request(kind, *size, random_strings=0.3, **more)


# Ids


def test_character_ids_are_those_of_the_shipped_tokenizer() -> None:
    body = (TINY_FOLDER / "tokenizer.json").read_text(encoding="utf-8")
    shipped = json.loads(body)["model"]["vocab"]
    alphabet = charset.byte_alphabet()
    assert [shipped[alphabet[ord(c)]] for c in charset.CHARACTERS] == list(charset.CLASS_IDS[:-1])
    assert {t: shipped[t] for t in (*charset.SPECIAL, charset.IMAGE_TOKEN)} == {
        **charset.SPECIAL_ID, charset.IMAGE_TOKEN: charset.IMAGE_ID,
    }  # fmt: skip
    tokenizer.PromptEncoder(body)  # raises where it would write other characters than the head means


@pytest.mark.parametrize("text", [WORDS, "", "ééé 日本", string.printable * 30])
def test_ids_do_not_depend_on_the_text_merges_are_counted_on(text: str) -> None:
    body = tokenizer.make(text)
    vocabulary = json.loads(body)["model"]["vocab"]
    assert vocabulary[charset.IMAGE_TOKEN] == 151_665
    assert {token: vocabulary[token] for token in charset.SPECIAL} == charset.SPECIAL_ID
    dense = sorted(id_ for token, id_ in vocabulary.items() if token != charset.IMAGE_TOKEN)
    assert dense == list(range(len(dense))) and len(dense) <= charset.DENSE
    assert len(set(vocabulary.values())) == len(vocabulary)
    tokenizer.PromptEncoder(body)


def test_tokenizer_is_the_same_every_time_and_shortens_prompts() -> None:
    body = tokenizer.make(CORPUS.train)
    assert tokenizer.make(CORPUS.train) == body
    encoder = tokenizer.PromptEncoder(body)
    assert len(encoder.ids(tokenizer.PROMPTS[0])) < len(tokenizer.PROMPTS[0]) / 3
    assert max(encoder.ids("ünïcode <|imgpad|> 日本")) <= charset.IMAGE_ID


def test_tokenizer_with_other_ids_is_refused() -> None:
    body = json.loads(tokenizer.make(WORDS))
    vocabulary = body["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    with pytest.raises(ValueError, match="other ids"):
        tokenizer.PromptEncoder(json.dumps(body))


def test_files_beside_the_weights_are_those_of_the_shipped_checkpoint() -> None:
    for name, body in released.files_for(SHIPPED.shape, "float32").items():
        assert json.loads((TINY_FOLDER / name).read_text(encoding="utf-8")) == body, name


# Text


@given(st.text())
def test_corpus_text_has_only_characters_the_model_knows(text: str) -> None:
    assert set(corpus.without_rules(text)) <= set(charset.CHARACTERS) - {"\n"}


@given(seeds, st.integers(1, 300), st.floats(0, 1))
def test_phrases_are_as_long_as_asked_and_of_known_characters(seed: int, length: int, share: float) -> None:
    text = phrases.text(Random(seed), length, CORPUS, random_strings=share)
    assert set(text) <= set(charset.CHARACTERS) - {"\n"}
    assert length <= len(text) + 40 and len(text) <= length + 60


def test_every_character_turns_up_in_training() -> None:
    rng = Random(5)
    seen = "".join(phrases.text(rng, 400, CORPUS, random_strings=0.3) for _ in range(60))
    assert set(charset.CHARACTERS) - set(seen) == {"\n"}


def test_builtin_corpus_is_there_everywhere_and_holds_text_out() -> None:
    found = corpus.gather("builtin")
    assert len(found.train) > 100_000 and len(found.held) > 4_000 and len(found.words) > 1_000
    assert found.fingerprint == corpus.gather("builtin").fingerprint
    pieces = [found.held[start : start + 80] for start in range(0, len(found.held) - 80, 997)]
    assert not any(piece in found.train for piece in pieces)


def test_debian_corpus_that_is_not_installed_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_debian", lambda: None)
    with pytest.raises(LookupError, match="bible-kjv fortunes"):
        corpus.gather("debian")
    assert corpus.gather("auto").source == "builtin"


def test_fonts_of_any_machine_can_draw_every_use() -> None:
    for named in (True, False):
        found = fonts.find(named=named)
        groups = [getattr(found, field.name) for field in dataclasses.fields(found)]
        assert all(groups)
        assert not {*found.held} & {*found.regular, *found.bold, *found.italic} - {PILLOW}


# Pictures


@settings(max_examples=25)
@given(seeds, kinds, st.booleans())
def test_equal_seeds_draw_equal_pictures(seed: int, kind: Kind, spoiled: bool) -> None:
    first, second = (
        pictures.make(Random(seed), request_of(kind, spoiled=spoiled), SOURCES) for _ in range(2)
    )
    assert np.array_equal(first.pixels, second.pixels)
    assert (first.text, first.centres) == (second.text, second.centres)


@settings(max_examples=40)
@given(seeds, kinds, st.booleans(), st.sampled_from(list(RECIPES.values())))
def test_centres_lie_on_the_picture_in_reading_order(
    seed: int, kind: Kind, spoiled: bool, recipe: Recipe
) -> None:
    request = request_of(kind, spoiled=spoiled)
    picture = pictures.make(Random(seed), request, Sources(CORPUS, FONTS, recipe.looks))
    assert picture.pixels.shape == (request.height, request.width) and picture.pixels.dtype == np.uint8
    assert len(picture.centres) == len(picture.text) > 0
    # "ab" stands on a line too short for any word, and may run out of it
    inside = [0 <= x <= request.width + 2 and 0 <= y <= request.height for x, y in picture.centres]
    assert all(inside) or picture.text == "ab"
    lines, start = picture.text.split("\n"), 0
    tops = []
    for line in lines:
        xs, ys = zip(*picture.centres[start : start + len(line)], strict=True)
        assert list(xs) == sorted(xs)
        assert len(set(ys)) == 1
        tops.append(ys[0])
        start += len(line) + 1
    assert tops == sorted(set(tops))
    if kind is Kind.LINE:
        assert len(lines) == 1


@pytest.mark.parametrize("scale", [0.6, 1.0, 1.37, 1.8])
def test_characters_are_inked_where_their_centres_say(scale: float) -> None:
    canvas = drawing.Canvas(280, 56, scale, drawing.Ink(0, 255))
    canvas.write("HEH EHE", drawing.Look(PILLOW, 24), 10, 38)
    pixels = np.asarray(canvas.image.resize((280, 56)))
    for character, (x, y) in zip(canvas.text, canvas.centres, strict=True):
        around = pixels[round(y) - 8 : round(y) + 8, round(x) - 2 : round(x) + 3]
        assert (around.min() < 128) == (character != " ")


def test_held_text_and_fonts_are_never_drawn_in_training() -> None:
    taken = FontSet((PILLOW,), (PILLOW,), (PILLOW,), ("/no/such.ttf",), ("/no/such.ttf",))
    for seed in range(30):
        picture = pictures.make(Random(seed), request_of(Kind.BLOCK), Sources(CORPUS, taken, SHIPPED.looks))
        assert "ferries" not in picture.text


# Labels


@settings(max_examples=40)
@given(seeds, kinds, st.sampled_from(list(RECIPES.values())))
def test_labels_say_what_stands_where(seed: int, kind: Kind, recipe: Recipe) -> None:
    request, slots = request_of(kind), recipe.shape.slots
    picture = pictures.make(Random(seed), request, Sources(CORPUS, FONTS, recipe.looks))
    labels = batches.label(picture, slots)
    tokens = (request.height // TILE_PX) * (request.width // TILE_PX)
    text = "".join(charset.CHARACTERS[class_] for class_ in labels.classes[:-1])
    assert text == picture.text and labels.classes[-1] == charset.END
    assert labels.slots.shape == (tokens, slots[0] * slots[1])
    assert len(labels.tokens) == len(labels.classes)
    assert labels.tokens.min() >= 0 and labels.tokens.max() < tokens
    columns = request.width // TILE_PX
    for (x, y), token in zip(picture.centres, labels.tokens, strict=False):
        if 0 <= x < request.width and 0 <= y < request.height:
            assert (int(y) // TILE_PX, int(x) // TILE_PX) == divmod(int(token), columns)
    named = {charset.CHARACTERS[class_] for class_ in labels.slots[labels.slots > 0]}
    assert named <= set(picture.text) - {" ", "\n"}


def test_heading_mark_is_written_but_not_seen() -> None:
    canvas = drawing.Canvas(280, 112, 1.0, drawing.Ink(0, 255))
    canvas.write("Title #1", drawing.Look(PILLOW, 24), 10, 38, heading=True)
    picture = pictures.Picture(np.asarray(canvas.image), canvas.text, tuple(canvas.centres))
    labels = batches.label(picture, (1, 7))
    assert picture.text == "# Title #1"
    assert sorted(labels.slots[labels.slots > 0]) == sorted(charset.CLASS_OF[c] for c in "Title#1")


def test_patches_are_those_of_the_processor() -> None:
    # transformers' own Qwen2-VL image processor, with the shipped settings
    processing = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    pixels = np.frombuffer(Random(1).randbytes(56 * 84), np.uint8).reshape(56, 84)
    body = json.loads((TINY_FOLDER / "preprocessor_config.json").read_text(encoding="utf-8"))
    processor = processing.Qwen2VLImageProcessorPil(
        **{
            key: body[key]
            for key in ("size", "patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std")
        }
    )
    theirs = processor(np.stack([pixels] * 3, -1), return_tensors="np")["pixel_values"]
    ours = batches.patchify(pixels)
    for channel in np.split(theirs, 3, axis=1):
        np.testing.assert_allclose(channel, ours, atol=1e-6)


# Recipe


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_curriculum_covers_the_run_and_every_batch_fits(recipe: Recipe) -> None:
    assert [phase.until for phase in recipe.phases] == sorted({phase.until for phase in recipe.phases})
    assert recipe.phases[-1].until == 1.0
    for phase in recipe.phases:
        assert sum(phase.shares.values()) == pytest.approx(1)
        rng = Random(0)
        for _ in range(200):
            request, count = batches.pick(rng, phase, recipe)
            assert phase.shares[request.kind] > 0
            patches = count * (request.width // 14) * (request.height // 14)
            assert count == 1 or patches <= recipe.patches
            assert request.width % TILE_PX == request.height % TILE_PX == 0
    kept = {int(layer) for layer in recipe.shape.guided}
    assert kept <= set(range(recipe.shape.layers))


def test_learning_rate_warms_up_and_falls_to_its_floor() -> None:
    rates = [SHIPPED.rate(step, 10_000) for step in range(10_000)]
    assert rates[0] < rates[149] == max(rates) == rates[2_000] == SHIPPED.learning_rate
    assert rates[2_500:] == sorted(rates[2_500:], reverse=True)
    assert rates[-1] == pytest.approx(SHIPPED.floor * SHIPPED.learning_rate, rel=1e-3)
    assert SHIPPED.phase(0, 10) is SHIPPED.phases[0] and SHIPPED.phase(9, 10) is SHIPPED.phases[-1]


def test_batch_depends_on_its_number_alone() -> None:
    body = tokenizer.make(WORDS)
    recipe = dataclasses.replace(SHIPPED, patches=200)
    one, other = (batches.Renderer(recipe, 50, seed, SOURCES, body) for seed in (1, 2))
    first = one.batch(7, 1)
    one.batch(3, 0)
    again = one.batch(7, 1)
    assert first.texts == again.texts and np.array_equal(first.patches, again.patches)
    assert first.prompt == again.prompt
    assert first.texts != one.batch(7, 0).texts and first.texts != other.batch(7, 1).texts


def test_rows_survive_packing_within_half_precision_of_their_scale() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 128)).astype(np.float32)
    table = packing.pack({0: rows[0], 5: rows[1], charset.IMAGE_ID: rows[2]})
    back = packing.unpack(table, (0, 5, charset.IMAGE_ID))
    for row, stored in zip(rows, back, strict=True):
        levels = stored / row.std(ddof=1)
        assert {round(float(level), 2) for level in levels} <= {-1.5, -0.5, 0.5, 1.5}
        assert np.abs(row - stored).max() < 3 and np.corrcoef(row, stored)[0, 1] > 0.9
    assert not packing.unpack(table, (1, 1000)).any()
    again = packing.pack({5: back[1]})  # what is stored is a fixed point of the levels, not of the scale
    assert np.array_equal(np.sign(packing.unpack(again, (5,))), np.sign(back[1:2]))


def test_shipped_tables_unpack_to_what_mlx_makes_of_them() -> None:
    mx = pytest.importorskip("mlx.core")
    weights = mx.load(str(TINY_FOLDER / "model.safetensors"))
    parts = {part: weights[f"lm_head.{part}"] for part in ("weight", "scales", "biases")}
    theirs = mx.dequantize(
        parts["weight"][:300], parts["scales"][:300].astype(mx.float32), parts["biases"][:300].astype(mx.float32),
        group_size=128, bits=2,
    )  # fmt: skip
    ours = packing.unpack({name: np.array(array) for name, array in parts.items()}, range(300))
    np.testing.assert_allclose(np.array(theirs), ours, atol=1e-6)


def test_wide_recipe_can_tell_two_lines_in_one_token() -> None:
    assert WIDE.looks.least_pitch_px > TILE_PX / WIDE.shape.slots[0]
    assert SHIPPED.looks.least_pitch_px >= TILE_PX / SHIPPED.shape.slots[0]


# Command line


def test_sources_are_described_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert train_tiny.main(["sources", "--corpus", "builtin"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["corpus"]["source"] == "builtin" and body["fonts"]["regular"] > 0


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_training_without_torch_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_tiny.main(["train", "--out", str(tmp_path / "out"), "--steps", "1"]) == 1
    assert "uv sync --extra train" in capsys.readouterr().err


# With torch

SMALL = Recipe(
    "small",
    tuple(
        dataclasses.replace(phase, block_tiles=((2, 3), (4, 6)), page_tiles=((4, 5), (5, 6)))
        for phase in SHIPPED.phases
    ),
    shape=Shape(vision_dim=48, vision_layers=1, vision_heads=2, vision_inner=48, layers=2, inner=64, guided={1: (0,)}),
    looks=Looks(text_px=(17, 19), page_text_px=(17, 18)),
    patches=100,
    most_pictures=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    module = pytest.importorskip("torch", reason="torch is not installed (extra `train`)")
    threads = module.get_num_threads()
    module.set_num_threads(1)
    yield module
    module.set_num_threads(threads)


def trainer_of(out: Path, **options: Any) -> Any:
    from tools.tiny.training import Options, Trainer

    out.mkdir(exist_ok=True)
    renderer = batches.Renderer(SMALL, 8, 3, SOURCES, tokenizer.make(WORDS))
    return Trainer(renderer, Options(out, **{"renderers": 0, **options}))


def weights_of(state: Any) -> dict[str, np.ndarray]:
    found = {f"model.{k}": v.float().numpy().copy() for k, v in state.model.state_dict().items()}
    return found | {f"averaged.{k}": v.float().numpy().copy() for k, v in state.averaged.state_dict().items()}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not np.array_equal(one[name], other[name])] == []


def test_equal_seeds_learn_equal_weights_and_a_resumed_run_as_well(torch: Any, tmp_path: Path) -> None:
    whole = weights_of(trainer_of(tmp_path / "whole").run())
    assert_same(whole, weights_of(trainer_of(tmp_path / "again").run()))
    first = trainer_of(tmp_path / "halves")
    untrained = weights_of(first.state)
    assert first.run(until=4).step == 4
    second = trainer_of(tmp_path / "halves")
    second.state.load(tmp_path / "halves")
    assert_same(whole, weights_of(second.run()))
    assert not np.array_equal(whole["averaged.head"], untrained["averaged.head"])


@pytest.mark.slow
def test_two_processes_and_drawing_ahead_learn_the_same_weights(torch: Any, tmp_path: Path) -> None:
    from tools.tiny import parallel
    from tools.tiny.training import Options

    renderer = batches.Renderer(SMALL, 4, 3, SOURCES, tokenizer.make(WORDS))
    found = []
    for processes, renderers in ((1, 0), (2, 1)):
        out = tmp_path / f"{processes}"
        out.mkdir()
        options = Options(out, processes=processes, renderers=renderers)
        found.append(weights_of(parallel.run(renderer, options, resume=False)))
    assert_same(*found)


def test_a_model_learns_what_it_sees_again_and_again(torch: Any) -> None:
    from tools.tiny import training
    from tools.tiny.objectives import losses

    phase = Phase(1.0, {Kind.LINE: 1.0}, 0.0)
    pages = [
        pictures.make(Random(seed), Request(Kind.LINE, 84, 28, spoiled=False), SOURCES) for seed in (1, 2)
    ]
    batch = batches.collate(pages, Kind.LINE, SMALL.shape.slots)
    state = training.begin(SMALL, 0, "cpu")
    seen = []
    for _ in range(60):
        found = losses(state.model, batch, phase, torch.device("cpu"))
        found.total.backward()
        state.optimiser.step()
        state.optimiser.zero_grad()
        seen.append(found.shown)
    for name in ("text", "centres", "guidance"):
        assert seen[-1][name] < 0.5 * seen[0][name], name
    assert seen[-1]["right"] > seen[0]["right"]


def test_reading_token_by_token_equals_one_pass(torch: Any) -> None:
    from tools.tiny.model import TinyModel
    from tools.tiny.reading import read

    torch.manual_seed(0)
    model = TinyModel(SMALL.shape).eval()
    patches = np.random.default_rng(0).uniform(-1, 1, (2, 2 * 8, 196)).astype(np.float32)
    texts = read(model, patches, 2, 8, (10, 11), most=12)
    with torch.no_grad():
        features = model.vision_tower(torch.from_numpy(patches), 2, 8)
        question = model.question(features, (10, 11))
        for index, text in enumerate(texts):
            classes = torch.tensor([charset.CLASS_OF[c] for c in text])
            x = torch.cat((question[index : index + 1], model.embed(model.class_ids[classes])[None]), 1)
            hidden, _ = model.read(x)
            best = model.logits(hidden[0, question.shape[1] - 1 :]).argmax(-1).tolist()
            assert best[: len(text)] == classes.tolist()


def test_exported_checkpoint_loads_in_mlx_vlm_and_computes_the_same(torch: Any, tmp_path: Path) -> None:
    from tools.tiny import exporting, parity
    from tools.tiny.model import TinyModel, two_bit

    torch.manual_seed(1)
    model = TinyModel(SMALL.shape)
    folder = exporting.export(model, tokenizer.make(WORDS), tmp_path / "model")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 30e6
    found = parity.compare(folder, SOURCES, "OCR")
    assert found.holds and found.same_choices, found
    back = exporting.load(folder)
    np.testing.assert_allclose(back.head.numpy(), two_bit(model.head).detach().numpy(), rtol=2e-3, atol=1e-3)
    for name in ("vision_tower.patch_embed.patchifier.proj.weight", "model.layers.1.mlp.up_proj.weight"):
        np.testing.assert_allclose(back.state_dict()[name], model.state_dict()[name], rtol=1e-5, atol=1e-7)


def test_shipped_checkpoint_reads_in_torch(torch: Any) -> None:
    from tools.tiny import evaluation, exporting

    sources = Sources(CORPUS, FONTS, SHIPPED.looks)
    rates = evaluation.curve_point(exporting.load(TINY_FOLDER), sources, (), {Kind.LINE: ((252, 28, 6),)})
    assert rates["line/trained"] < 0.15


def test_a_few_steps_make_a_checkpoint(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.adapter import loading
    from tools.tiny import run

    monkeypatch.setattr(fonts, "find", lambda named=True: FONTS)
    monkeypatch.setattr(corpus, "gather", lambda source="auto": CORPUS)
    monkeypatch.setitem(RECIPES, "shipped", SMALL)
    monkeypatch.setattr(run, "_TRY_PATCHES", 60)
    out = tmp_path / "out"
    arguments = ["train", "--out", str(out), "--renderers", "0", "--steps", "3"]
    assert train_tiny.main(arguments) == 0
    report = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))
    assert report["steps"] == 3 and len(report["rates"]) == 12
    assert loading.load(out / "model").architecture == "dots_ocr"
    assert train_tiny.main([*arguments, "--resume", "--seed", "2"]) == 1  # made from something else
    assert train_tiny.main([*arguments, "--resume"]) == 0  # nothing left to do
