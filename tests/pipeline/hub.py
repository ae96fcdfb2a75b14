"""A model hub in a thread: as much of huggingface.co's protocol as fetching a model needs, on 127.0.0.1."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """One repository, `owner/model`: its files, and what goes wrong."""

    files: dict[str, bytes]
    commit: str = COMMIT
    repository: str = "owner/model"
    cut: dict[str, int] = field(default_factory=dict)  # file → bytes after which the connection drops, once
    status: int = 200  # of the look-up
    error_code: str = ""  # X-Error-Code with it
    corrupt: set[str] = field(default_factory=set)  # files that come with other bytes
    absent: set[str] = field(default_factory=set)  # files the hub lists and does not give
    served: list[tuple[str, int]] = field(default_factory=list)  # (file, first byte) of every download
    endpoint: str = ""

    def info(self) -> dict[str, object]:
        return {
            "id": self.repository, "modelId": self.repository, "sha": self.commit, "private": False, "tags": [],
            "downloads": 0, "siblings": [
                {
                    "rfilename": name, "size": len(body), "blobId": hashlib.sha1(body).hexdigest(),
                    **({"lfs": {"sha256": _sha256(body), "size": len(body), "pointerSize": 134}}
                       if name.endswith(".safetensors") else {}),
                }
                for name, body in self.files.items()
            ],
        }  # fmt: skip

    def tree(self) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
            for name, body in self.files.items()
        ]


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """The hub at `hub.endpoint`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = unquote(self.path.partition("?")[0])
            if path.startswith(f"/api/models/{hub.repository}"):
                body = json.dumps(hub.tree() if "/tree/" in path else hub.info()).encode()
                self._send(
                    hub.status, body if hub.status == 200 else b"{}", {"Content-Type": "application/json"}
                )
            elif path.startswith(f"/{hub.repository}/resolve/{hub.commit}/"):
                self._file(path.partition(f"/resolve/{hub.commit}/")[2], with_body)
            else:
                self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

        def _file(self, name: str, with_body: bool) -> None:
            if name in hub.absent:
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            body = hub.files[name]
            kind = _sha256(body) if name.endswith(".safetensors") else hashlib.sha1(body).hexdigest()
            if name in hub.corrupt:
                body = body[:-1] + bytes([body[-1] ^ 1])
            headers = {"ETag": f'"{kind}"', "X-Repo-Commit": hub.commit, "Accept-Ranges": "bytes"}
            if not with_body:
                self._send(200, b"", headers, length=len(body))
                return
            wanted = self.headers.get("Range", "")
            start = int(wanted.removeprefix("bytes=").split("-")[0] or 0) if wanted else 0
            hub.served.append((name, start))
            status = 200
            if wanted:
                status, headers["Content-Range"] = 206, f"bytes {start}-{len(body) - 1}/{len(body)}"
            self._send(status, body[start:], headers, cut=hub.cut.pop(name, None))

        def _send(
            self, status: int, body: bytes, headers: dict[str, str], *, length: int | None = None,
            cut: int | None = None,
        ) -> None:  # fmt: skip
            self.send_response(status)
            if status != 200 and hub.error_code:
                headers = {"X-Error-Code": hub.error_code} | headers
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body if cut is None else body[:cut])
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def checkpoint_files(architecture: str = "dots_ocr", weights_bytes: int = 2000) -> dict[str, bytes]:
    """The least that passes for a checkpoint until it is loaded."""
    header = json.dumps(
        {"w": {"dtype": "U8", "shape": [weights_bytes], "data_offsets": [0, weights_bytes]}}
    ).encode()
    return {
        "config.json": json.dumps({"model_type": architecture}).encode(),
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b"{}",
        "model.safetensors": struct.pack("<Q", len(header)) + header + bytes(weights_bytes),
        "README.md": b"A model.",
    }
