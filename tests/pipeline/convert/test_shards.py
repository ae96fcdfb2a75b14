"""How tensors are distributed over files."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pipeline.convert.shards import index, lay_out, total_bytes


@dataclass(frozen=True)
class Piece:
    name: str
    size_bytes: int
    dtype: str = "BF16"
    shape: tuple[int, ...] = (1,)


SIZES = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=3), min_size=1, max_size=30)


@given(SIZES, st.integers(1, 120))
def test_every_module_is_in_one_file_in_order_and_files_keep_to_their_size(
    sizes: list[list[int]], limit: int
) -> None:
    modules = {f"m{n}": [Piece(f"m{n}.{i}", s) for i, s in enumerate(parts)] for n, parts in enumerate(sizes)}
    shards = lay_out(modules, limit)
    assert [module for shard in shards for module in shard.modules] == list(modules)
    assert all(shard.size_bytes <= limit or len(shard.modules) == 1 for shard in shards)
    assert total_bytes(shards) == sum(map(sum, sizes))
    places = index(shards)["weight_map"]
    assert places == {piece.name: shard.name for shard in shards for piece in shard.pieces}
    assert list(places) == sorted(places) and len(set(places.values())) == len(shards)


@given(st.integers(1, 9))
def test_files_are_named_as_loaders_expect(count: int) -> None:
    shards = lay_out({f"m{n}": [Piece(f"m{n}.weight", 10)] for n in range(count)}, 10)
    names = [shard.name for shard in shards]
    if count == 1:
        assert names == ["model.safetensors"]
    else:
        assert names[0] == f"model-00001-of-{count:05d}.safetensors" and len(names) == count
