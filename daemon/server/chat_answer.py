"""What was read, in OpenAI's words: completions, chunks, usage, why it ended."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from typing import Any

from daemon.asks.frames import Frame
from daemon.server import failures
from daemon.server.failures import Refused

SEPARATOR = "\n\n"  # between pages
_FINISH = {
    "complete": "stop",
    "blank": "stop",
    "length": "length",
    "repetition": "repetition",
    "error": "stop",
}
_WORST = ("length", "repetition")
# Of a page's reading: what is told under `ocrd`, beside OpenAI's own fields.
_TOLD = (
    "page", "markdown", "text_source", "stop_reason", "engine", "model", "confidence", "warnings", "seconds", "tokens",
    "passes", "drafted", "accepted",
)  # fmt: skip


class Completion:
    """One answer, whole or in chunks; `pages` are frames of kind `read`."""

    def __init__(self, model: str, now: float | None = None) -> None:
        self.id = f"chatcmpl-{secrets.token_hex(12)}"
        self.model = model
        self.created = int(time.time() if now is None else now)
        self.pages: list[Frame] = []

    def whole(self) -> dict[str, object]:
        """The answer to a request that does not stream."""
        content = SEPARATOR.join(page["markdown"] for page in self.pages if page["markdown"])
        message = {"role": "assistant", "content": content, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        return self._shape("chat.completion", [choice]) | {"usage": self.usage, "ocrd": self.told(text=False)}

    def chunk(self, delta: dict[str, object], finish_reason: str | None = None) -> dict[str, Any]:
        """A piece of a streamed answer."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._shape("chat.completion.chunk", [choice])

    def last_chunk(self) -> dict[str, Any]:
        """The chunk that says why it ended, and what each page is when it is whole."""
        return self.chunk({}, self.finish_reason) | {"ocrd": self.told(text=True)}

    def usage_chunk(self) -> dict[str, Any]:
        """The chunk that `stream_options.include_usage` asks for."""
        return self._shape("chat.completion.chunk", []) | {"usage": self.usage}

    @property
    def finish_reason(self) -> str:
        """`length` or `repetition` if any page was cut short, else `stop`."""
        reasons = {_FINISH.get(str(page["stop_reason"]), "stop") for page in self.pages}
        return next((reason for reason in _WORST if reason in reasons), "stop")

    @property
    def usage(self) -> dict[str, object]:
        """Tokens of all pages; none where no model read."""
        prompt, written = self._sum("prompt_tokens"), self._sum("tokens")
        accepted, drafted = self._sum("accepted"), self._sum("drafted")
        return {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
            "completion_tokens_details": {
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": max(0, drafted - accepted),
            },
        }

    def told(self, *, text: bool) -> dict[str, object]:
        """What else is known of each page; its Markdown where the answer had it in another form."""
        names = [name for name in _TOLD if text or name != "markdown" or len(self.pages) > 1]
        return {"pages": [{name: page[name] for name in names} for page in self.pages]}

    def _shape(self, kind: str, choices: Sequence[dict[str, object]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }

    def _sum(self, name: str) -> int:
        return sum(int(page[name]) for page in self.pages)


def event(data: dict[str, Any]) -> bytes:
    """A server-sent event with JSON."""
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def failed_event(told: Refused) -> bytes:
    """A failure in the middle of a stream."""
    return event(failures.body(told))


DONE = b"data: [DONE]\n\n"
WAITING = b": waiting\n\n"  # a comment, which clients skip; proxies and sockets see that something lives
