"""Sample from an OpenAI-compatible server (vLLM, SGLang, llama.cpp, a hosted one) over HTTP.

    POST URL/chat/completions or URL/completions   {"model", "messages" | "prompt", "seed", ...}
    GET  URL/models                                checks server and model; the context length

Temporary failures (no connection, a broken one, 408, 429, 5xx) are tried again after growing pauses
or Retry-After. Other failures raise `NoReply`: the answer is missing, not incorrect. The key is
sent and stored nowhere.

Answers and refusals are stored and shown, and a server may repeat the key: complete, in pieces,
with characters between, in base64 or in hex. Pieces of fewer than `PIECE` letters and digits are
not recognised."""

import asyncio
import base64
import itertools
import json
import random
import re
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import JsonObject, OptionalInt, OptionalText
from gspo_lab.common.registry import unlisted
from gspo_lab.training.samplers.base import Sampling

SECRET = 12
"""A shorter key is a placeholder ("EMPTY"), which an answer may contain."""
PIECE = 8
MASK = "[the key]"

_SEPARATORS = re.compile("[^A-Za-z0-9]+")


class KeyMask:
    """Hides one key. A key shorter than `SECRET` is not hidden."""

    def __init__(self, key: OptionalText) -> None:
        self._pieces: set[str] = set()
        if key is None or len(key) < SECRET:
            return
        raw = key.encode()
        # Base64 has three forms of a text, by the bytes before it; characters at the ends depend on
        # other text too.
        forms = [
            base64.b64encode(bytes(offset) + raw).decode()[
                -(-8 * offset // 6) : 8 * (offset + len(raw)) // 6
            ]
            for offset in range(3)
        ]
        for form in (key, key[::-1], raw.hex(), *forms):
            plain = _SEPARATORS.sub("", form).lower()
            self._pieces.update(
                plain[place : place + PIECE] for place in range(len(plain) - PIECE + 1)
            )

    def json_of(self, content: bytes) -> Any:
        """The JSON value with the key hidden in its texts; None if it is not JSON, which is never
        shown.
        """
        try:
            return self._hidden(json.loads(content))
        except (ValueError, RecursionError):
            return None

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self._hidden(item) for item in value]
        if isinstance(value, dict):
            return {self.hide(name): self._hidden(item) for name, item in value.items()}
        return value

    def hide(self, text: str) -> str:
        """The text with `MASK` in place of each part that consists of pieces of the key."""
        plain = _SEPARATORS.sub("", text).lower()
        pieces = [piece for piece in self._pieces if piece in plain]
        if not pieces:
            return text
        spread = "|".join("[^A-Za-z0-9]*".join(piece) for piece in pieces)
        marks = bytearray(len(text))
        for match in re.finditer(f"(?=({spread}))", text, re.IGNORECASE):
            marks[match.start(1) : match.end(1)] = b"\1" * (match.end(1) - match.start(1))
        out = []
        place = 0
        for marked, stretch in itertools.groupby(marks):
            length = len(list(stretch))
            out.append(MASK if marked else text[place : place + length])
            place += length
        return "".join(out)


require_package("httpx2", "server", "asking a server")
import httpx2 as httpx  # noqa: E402 - only where it is there

SEED_BITS = 31
"""Bits of a seed that every server accepts; llama.cpp's seeds have 32 bits."""

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
MOST_TOKENS = 1 << 40
"""A larger number of tokens in an answer is an error of the server."""

LARGEST_BYTES = 64 << 20
"""Longest answer with its reasoning, in bytes."""

PATIENCE_SECONDS = 600.0
"""Longest Retry-After that is waited for."""


class NoReply(Exception):
    """A request that failed at every try; `refused`: the server refuses such requests."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True)
class ServerEndpoint:
    """A server's address: `url` up to .../v1. `key` is sent with every request and shown nowhere.

    `tries` per request; `seconds`: limit of one try (a long answer takes minutes); `at_once`:
    concurrent requests.
    """

    url: str
    model: str
    key: OptionalText = field(default=None, repr=False)
    at_once: int = 16
    tries: int = 6
    seconds: float = 1800.0

    def __post_init__(self) -> None:
        try:
            address = urlsplit(self.url)
            port = httpx.URL(self.url).port
        except (ValueError, httpx.InvalidURL) as error:
            raise LabError(
                f"--server: write the address as http://HOST:PORT/v1 ({error})"
            ) from error
        if port is not None and not 0 < port < 1 << 16:
            raise LabError(f"--server: {port} is not a port; use a number from 1 to 65535")
        if address.scheme not in ("http", "https") or not address.hostname:
            raise LabError(f"--server {self.url}: write it as http://HOST:PORT/v1")
        if "@" in address.netloc:
            raise LabError(
                "--server: leave user and password out of the address; give a key in the"
                " environment"
            )
        if address.query or address.fragment:
            raise LabError(f"--server {self.url}: leave out what follows the path")
        if self.at_once < 1:
            raise LabError(
                f"--concurrency {self.at_once}: at least one request has to be in flight"
            )


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the server; `tokens` or `model` is None if the server does not report it."""

    text: str
    tokens: OptionalInt
    truncated: bool
    prompt_tokens: OptionalInt
    model: OptionalText = None


class ServerSampler:
    """Samples from one server.

    Open it with `async with`. It sends at most `server.at_once` requests at once.
    """

    def __init__(self, server: ServerEndpoint) -> None:
        self.server = server
        self._places = asyncio.Semaphore(server.at_once)
        self._mask = KeyMask(server.key)
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        key = self.server.key
        self._client = httpx.AsyncClient(
            base_url=self.server.url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(self.server.seconds, connect=10.0),
            limits=httpx.Limits(
                max_connections=self.server.at_once, max_keepalive_connections=self.server.at_once
            ),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._client is not None
        await self._client.aclose()

    async def context(self) -> int | None:
        """The model's context in tokens; None if the server does not report it.

        LabError if the server does not answer, refuses the key or does not have the model.
        """
        assert self._client is not None
        where = f"the server {self.server.url}"
        try:
            response = await self._client.get("models", timeout=10.0)
        except httpx.HTTPError as error:
            raise LabError(
                f"{where} does not answer ({_error_text(error)}): is it running, is the address"
                " right?"
            ) from error
        data = self._mask.json_of(response.content)
        if response.status_code in (401, 403):
            raise LabError(
                f"{where} refuses the key (HTTP {response.status_code}); it is read from the"
                " environment"
            )
        if response.status_code in (404, 405):
            return None  # some servers list no models
        if not response.is_success:
            raise LabError(
                f"{where} answers GET models with HTTP {response.status_code}{_reason(data)}"
            )
        entries = data.get("data") if isinstance(data, dict) else None
        if not isinstance(entries, list):
            raise LabError(
                f"{where} lists no models as OpenAI's does; does the address end in /v1?"
            )
        models = {
            str(entry["id"]): entry
            for entry in entries
            if isinstance(entry, dict) and "id" in entry
        }
        if self.server.model not in models:
            raise LabError(f"{where} has no model {unlisted(self.server.model, models, 'it has')}")
        return _context(models[self.server.model])

    async def ask(self, prompt: str, sampling: Sampling, seed: int, *, chat: bool) -> Reply:
        """One answer to a message through the model's chat template (`chat`), else a completion of
        the prompt.

        NoReply if the server refuses the request or every try fails.
        """
        body: JsonObject = {
            "model": self.server.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed & ((1 << SEED_BITS) - 1),
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if chat:
            path = "chat/completions"
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            path = "completions"
            body["prompt"] = prompt
        async with self._places:
            data = await self._post(path, body, random.Random(seed))
        try:
            return _reply(data, chat)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise NoReply(
                f"the server's answer does not fit {path}: {type(error).__name__} {error}"
            ) from error

    async def _post(self, path: str, body: JsonObject, jitter: random.Random) -> Any:
        """The JSON answer to a request, after up to `tries` tries."""
        assert self._client is not None
        for attempt in range(1, self.server.tries + 1):
            wait = min(
                LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
            ) * jitter.uniform(0.5, 1.0)
            try:
                response, data = await self._read_response(path, body)
                if response.is_success and data is not None:
                    return data
                failure = f"HTTP {response.status_code}{_reason(data)}"
                if response.is_success:
                    failure = "the answer is not JSON"
                elif (
                    response.status_code not in (408, 409, 425, 429) and response.status_code < 500
                ):
                    raise NoReply(failure, refused=True)
                wait = max(wait, _retry_after(response))
                if wait > PATIENCE_SECONDS:
                    raise NoReply(f"{failure}; the server asks to wait {wait:.0f} s")
            except httpx.HTTPError as error:
                failure = _error_text(error)
            except TimeoutError:
                failure = f"no complete answer within {self.server.seconds:.0f} s"
            if attempt < self.server.tries:
                await asyncio.sleep(wait)
        raise NoReply(f"{failure}, {self.server.tries} times")

    async def _read_response(self, path: str, body: JsonObject) -> tuple[httpx.Response, Any]:
        """The response, and its JSON without the key, which a server may repeat.

        TimeoutError after `seconds`; NoReply if it is too long.
        """
        assert self._client is not None
        async with asyncio.timeout(self.server.seconds):
            async with self._client.stream("POST", path, json=body) as response:
                content = bytearray()
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > LARGEST_BYTES:
                        raise NoReply(
                            f"the answer does not end: more than {LARGEST_BYTES >> 20} MiB"
                        )
        return response, self._mask.json_of(bytes(content))


def _reply(data: Any, chat: bool) -> Reply:
    choice = data["choices"][0]
    usage = data.get("usage") or {}
    ended = choice.get("finish_reason")
    if ended in ("abort", "error"):
        raise NoReply(f"the server broke the answer off ({ended})")
    text = _message(choice["message"]) if chat else choice["text"]
    if not isinstance(text, str):
        raise TypeError("the text is no string")
    model = data.get("model")
    return Reply(
        text,
        _count(usage.get("completion_tokens")),
        ended == "length",
        _count(usage.get("prompt_tokens")),
        model if isinstance(model, str) and model else None,
    )


def _count(value: Any) -> OptionalInt:
    """A number of tokens; None (not measured) for any other value."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
        else None
    )


def _message(message: JsonObject) -> Any:
    """A chat answer's text, with its reasoning in <think> tags if the server separates it."""
    content = message.get("content")
    thought = message.get("reasoning_content") or message.get("reasoning")
    if not thought:
        return "" if content is None else content
    return f"<think>{thought}" + ("" if content is None else f"</think>{content}")


def _context(entry: JsonObject) -> OptionalInt:
    """vLLM and SGLang report max_model_len, llama.cpp meta.n_ctx, others context_length."""
    meta = entry.get("meta") or {}
    lengths = (entry.get("max_model_len"), meta.get("n_ctx"), entry.get("context_length"))
    return next((length for length in lengths if isinstance(length, int) and length > 0), None)


def _retry_after(response: httpx.Response) -> float:
    """Seconds to wait by the Retry-After header, a number or a date; 0 without it."""
    delay = response.headers.get("retry-after", "")
    if delay.isdecimal():
        return float(delay)
    try:
        return max(0.0, parsedate_to_datetime(delay).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0


def _reason(data: Any) -> str:
    """The server's reason for its refusal, in one line."""
    detail = data.get("error", data) if isinstance(data, dict) else None
    message = detail.get("message") if isinstance(detail, dict) else detail
    return f": {' '.join(message.split())[:200]}" if isinstance(message, str) else ""


def _error_text(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
