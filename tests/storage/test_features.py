"""The feature store: a hit is bitwise what was put, anything else is a miss, whatever happens to the files."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import features as module
from storage.features import Counters, Features, FeatureStore

KEY, OTHER = "a" * 64, "b" * 64
SMALL = Features("F16", (3, 4), bytes(range(24)))


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore(tmp_path / "features", 1 << 20)


def only_file(store: FeatureStore) -> Path:
    (path,) = store.folder.glob("*/*.safetensors")
    return path


@settings(max_examples=50)
@given(st.sampled_from(["F32", "F16", "BF16"]), st.integers(0, 5), st.integers(0, 9), st.integers(0, 99))
def test_what_is_put_comes_back_bitwise(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, rows: int, width: int, seed: int
) -> None:
    size = rows * width * (4 if dtype == "F32" else 2)
    features = Features(dtype, (rows, width), random.Random(seed).randbytes(size))
    store = FeatureStore(tmp_path_factory.mktemp("features"), 1 << 20)
    assert store.put(KEY, features, model="m", now=1.0)
    assert store.get(KEY, 2.0) == features


def test_files_are_safetensors_that_others_read(store: FeatureStore) -> None:
    safetensors = pytest.importorskip("safetensors", reason="comes with transformers")
    store.put(KEY, SMALL, model="m", now=1.0)
    ((name, tensor),) = safetensors.deserialize(only_file(store).read_bytes())
    assert (name, tensor["dtype"], tensor["shape"]) == ("features", "F16", [3, 4])
    assert bytes(tensor["data"]) == SMALL.data


def test_a_file_cut_at_any_byte_is_a_miss_and_deleted(store: FeatureStore) -> None:
    store.put(KEY, SMALL, model="m", now=1.0)
    path = only_file(store)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert store.get(KEY, 2.0) is None
        assert not path.exists()
    assert store.counters.torn == len(whole)


@settings(max_examples=200)
@given(st.data())
def test_a_flipped_bit_is_a_miss(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    store = FeatureStore(tmp_path_factory.mktemp("features"), 1 << 20)
    store.put(KEY, SMALL, model="m", now=1.0)
    path = only_file(store)
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    found = store.get(KEY, 2.0)
    # A flip in the model's name or in padding may leave the features themselves whole.
    assert found is None or found == SMALL


def test_a_foreign_file_is_a_miss(store: FeatureStore) -> None:
    store.put(KEY, SMALL, model="m", now=1.0)
    target = store.folder / OTHER[:2] / f"{OTHER}.safetensors"
    target.parent.mkdir()
    only_file(store).replace(target)
    assert store.get(OTHER, 2.0) is None
    assert not target.exists()
    assert store.counters == Counters(misses=1, stored=1, foreign=1)


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    one = len(module._serialise(SMALL, {"key": KEY, "format": module.FORMAT, "model": "m"}))
    store = FeatureStore(tmp_path, 4 * one)
    keys = [c * 64 for c in "abcd"]
    for now, key in enumerate(keys):
        store.put(key, SMALL, model="m", now=float(now))
    store.get(keys[0], 10.0)  # the oldest written is the latest used
    store.put("e" * 64, SMALL, model="m", now=11.0)
    assert [key for key in keys if store.get(key, 12.0)] == [keys[0], keys[3]]
    assert store.stats().bytes <= store.budget_bytes
    assert store.counters.evicted == 2


def test_a_large_store_is_not_looked_at_for_every_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = len(module._serialise(SMALL, {"key": KEY, "format": module.FORMAT, "model": "m"}))
    monkeypatch.setattr(module, "WRITERS", 4)
    stores = [FeatureStore(tmp_path, 200 * one) for _ in range(4)]
    looks = []
    real = FeatureStore._entries
    monkeypatch.setattr(FeatureStore, "_entries", lambda store: looks.append(store) or real(store))
    for number in range(300):
        assert stores[number % 4].put(f"{number:064x}", SMALL, model="m", now=float(number))
    assert len(looks) < 300
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*.safetensors")) <= 200 * one


def test_one_larger_than_the_budget_is_not_kept(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, 100)
    assert not store.put(KEY, Features("F32", (100,), bytes(400)), model="m", now=1.0)
    assert store.stats().files == 0


def test_a_full_disk_costs_the_caching_alone(store: FeatureStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    assert not store.put(KEY, SMALL, model="m", now=1.0)
    assert not list(store.folder.glob("*/.writing-*"))


def test_prune_takes_what_was_not_used_and_what_dead_writers_left(store: FeatureStore) -> None:
    store.put(KEY, SMALL, model="m", now=100.0)
    store.put(OTHER, SMALL, model="m", now=200.0)
    left = store.folder / KEY[:2] / f"{module.TEMP_PREFIX}999999999-00"
    left.write_bytes(b"half")
    assert store.prune(150.0) == 1
    assert not left.exists()
    assert store.get(KEY, 300.0) is None
    assert store.get(OTHER, 300.0) == SMALL
    assert store.clear() == 1


def test_counters_outlive_the_process(store: FeatureStore) -> None:
    store.put(KEY, SMALL, model="tiny", now=1.0)
    store.get(KEY, 2.0)
    store.get(OTHER, 2.0)
    store.close()
    stats = FeatureStore(store.folder, store.budget_bytes).stats()
    assert (stats.files, stats.models.keys()) == (1, {"tiny"})
    assert stats.counters == Counters(hits=1, misses=1, stored=1)


def test_a_folder_that_was_deleted_fails_no_page(store: FeatureStore) -> None:
    shutil.rmtree(store.folder)
    assert store.get(KEY, 1.0) is None
    assert not store.put(KEY, SMALL, model="m", now=2.0)
    store.save_counters()
    assert store.counters.misses == 1  # kept for a time when they can be written


WRITER = """
import sys, itertools
from pathlib import Path
from storage.features import Features, FeatureStore
store = FeatureStore(Path(sys.argv[1]), 40_000)
for n in itertools.count():
    key = f"{n % 23:064x}"
    store.put(key, Features("F16", (500,), bytes([n % 23]) * 1000), model="m", now=float(n))
    found = store.get(f"{(n * 7) % 23:064x}", float(n))
    assert found is None or len(set(found.data)) == 1
    if n == 0:
        print("ready", flush=True)
"""


def test_processes_killed_at_any_instant_leave_only_whole_files(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for delay in (0.05, 0.11, 0.17):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], cwd=root, stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + delay
        while time.monotonic() < deadline:
            assert all(writer.poll() is None for writer in writers)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
        store = FeatureStore(tmp_path, 40_000)
        store.prune(-1.0)
        assert not list(tmp_path.glob("*/.writing-*"))
        found = [store.get(f"{n:064x}", 1.0) for n in range(23)]
        assert any(found)
        assert store.counters.torn == store.counters.foreign == 0


def test_what_dead_writers_left_goes_with_the_first_put(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path / "features", 1 << 20)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (store.folder / "aa").mkdir()
    half = store.folder / "aa" / f".writing-{dead.pid}-00000000"
    counters = store.folder / f".writing-{dead.pid}-counters"
    living = store.folder / "aa" / f".writing-{os.getpid()}-00000000"
    for path in (half, counters, living):
        path.touch()
    store.put("aa1", Features("F32", (1,), b"\0" * 4), model="m", now=1.0)
    assert [path.exists() for path in (half, counters, living)] == [False, False, True]


def test_counters_that_find_no_space_leave_nothing(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.get(KEY, 1.0)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "replace", full)
        store.save_counters()
    assert [path.name for path in store.folder.iterdir()] == ["lock"]
    store.save_counters()
    assert store.stats().counters.misses == 1
