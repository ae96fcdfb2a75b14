"""Doorplates: found by card, private, gone with their process, whatever the length of the path."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

from daemon import processes
from daemon.asks import places
from daemon.asks.places import Doorplate


def talk(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(path)


def test_a_worker_is_found_by_its_card_and_gone_with_it(tmp_path: Path) -> None:
    owner = processes.owner_id()
    plate = Doorplate(tmp_path, owner)
    (place,) = places.places(tmp_path)
    assert place.owner == owner
    talk(place.socket)
    plate.close()
    assert places.places(tmp_path) == []
    assert list((tmp_path / "asks").iterdir()) == []


def test_only_its_user_may_ask(tmp_path: Path) -> None:
    plate = Doorplate(tmp_path, processes.owner_id())
    assert stat.S_IMODE(Path(plate.path).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "asks").stat().st_mode) == 0o700
    plate.close()


def test_a_home_with_a_long_path_has_its_socket_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    plate = Doorplate(home, processes.owner_id())
    (place,) = places.places(home)
    assert len(place.socket) < 104
    assert stat.S_IMODE(Path(place.socket).parent.stat().st_mode) == 0o700
    talk(place.socket)
    plate.close()
    assert not Path(place.socket).parent.exists()


def test_what_a_killed_worker_left_is_not_asked_and_removed(tmp_path: Path) -> None:
    folder = places.asks_folder(tmp_path)
    dead = f"{processes.host()}:999999999:0-0"
    (folder / "9.sock").touch()
    (folder / "9.json").write_text(json.dumps({"owner": dead, "socket": str(folder / "9.sock")}))
    (folder / "10.json").write_text("half a ca")
    assert places.places(tmp_path) == []
    plate = Doorplate(tmp_path, processes.owner_id())
    assert not (folder / "9.sock").exists()
    assert not (folder / "9.json").exists()
    plate.close()


def test_it_is_known_once_that_a_dead_worker_was_answering(tmp_path: Path) -> None:
    places.asks_folder(tmp_path)
    places.mark_path(tmp_path, "host:77:1").touch()
    assert not places.died_answering(tmp_path, "host:78:1")
    assert places.died_answering(tmp_path, "host:77:1")
    assert not places.died_answering(tmp_path, "host:77:1")
