"""An OpenAI-compatible server for tests.

It has real HTTP on loopback, a real built-in model, and faults on request.
"""

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gspo_lab.common.plain_data import JsonObject, OptionalInt, OptionalText
from gspo_lab.training.models.builtin_models import build, byte_tokenizer
from gspo_lab.training.samplers.base import Request, Rollout, Sampling
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler

MODEL = "tiny"
TOKENIZER = byte_tokenizer()


class TinyServer(ThreadingHTTPServer):
    """Serves a model of one layer, drawn from seed 0, one request at a time.

    `faults` are taken one per request for an answer: a status (429, 500), "drop" (the connection is
    closed), "garbage" (no JSON), "echo" and "echoed refusal" (the key is said back), "think" (the
    answer's thinking comes apart from it), "abort", "wait" (no answer before `go_on` is set), or
    seconds to be slow by. A status (429, 2) also says Retry-After: 2. `refuse` is part of a prompt
    that is refused with 400.
    """

    daemon_threads = True

    def __init__(self, *, context: OptionalInt = 4096, key: OptionalText = None) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.context = context
        self.key = key
        self.faults: deque[Any] = deque()
        self.always: Any = None
        self.go_on = threading.Event()
        self.refuse: OptionalText = None
        self.answers_as: OptionalText = MODEL
        self.error = "not this time"
        self.asked: list[JsonObject] = []
        self.times: list[float] = []
        self.waiting = self.most_waiting = 0
        self.counting = threading.Lock()
        self._sampler = TransformersSampler(
            build("tiny-qwen3", 0, {"layers": 1, "width": 16}), TOKENIZER
        )
        self._one_by_one = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def rollout(self, prompt: str, body: JsonObject) -> Rollout:
        sampling = Sampling(
            body["temperature"], body["top_p"], body["max_tokens"], tuple(body.get("stop", ()))
        )
        request = Request("asked", tuple(TOKENIZER.encode(prompt)), 0, body["seed"])
        with self._one_by_one:
            return self._sampler.sample([request], sampling)[0]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is none of the server's business."""


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: TinyServer

    def do_GET(self) -> None:
        if not self._known():
            return
        if self.path != "/v1/models":
            self._say(404, {"error": {"message": "no such page"}})
            return
        model = {"id": MODEL, "object": "model"}
        self._say(
            200,
            {
                "data": [
                    model | ({"max_model_len": self.server.context} if self.server.context else {})
                ]
            },
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self._known():
            return
        self.server.asked.append({"path": self.path, **body})
        self.server.times.append(time.monotonic())
        fault = self.server.faults.popleft() if self.server.faults else self.server.always
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
        elif isinstance(fault, tuple):
            self._say(
                fault[0], {"error": {"message": "too many at once"}}, {"Retry-After": str(fault[1])}
            )
        elif isinstance(fault, int):
            self._say(fault, {"error": {"message": self.server.error}})
        elif fault == "echo":
            self._say(
                200,
                {"choices": [{"message": {"content": f"you are {self.headers['authorization']}"}}]},
            )
        elif fault == "echoed refusal":
            self._say(400, {"error": {"message": f"you are {self.headers['authorization']}"}})
        elif fault in ("garbage", "deep"):
            self._write(200, b"<html>" if fault == "garbage" else b"[" * 200_000, {})
        elif fault in ("drip", "endless"):
            self._without_end(b" " * (1 << 20) if fault == "endless" else b" ")
        else:
            self._answer(body, fault)

    def _answer(self, body: JsonObject, fault: Any) -> None:
        if fault == "wait":
            with self.server.counting:
                self.server.waiting += 1
                self.server.most_waiting = max(self.server.most_waiting, self.server.waiting)
            self.server.go_on.wait(240)
            with self.server.counting:
                self.server.waiting -= 1
        if isinstance(fault, float):
            time.sleep(fault)
        chat = self.path == "/v1/chat/completions"
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        needed = len(TOKENIZER.encode(prompt)) + body["max_tokens"]
        if self.server.refuse is not None and self.server.refuse in prompt:
            self._say(400, {"error": {"message": "this one is refused"}})
        elif self.server.context is not None and needed > self.server.context:
            self._say(
                400,
                {
                    "error": {
                        "message": f"{needed} tokens, but the context has {self.server.context}"
                    }
                },
            )
        else:
            self._say(200, self._completion(prompt, body, chat, fault))

    def _completion(self, prompt: str, body: JsonObject, chat: bool, fault: Any) -> JsonObject:
        rollout = self.server.rollout(prompt, body)
        message: JsonObject = {"role": "assistant", "content": rollout.text}
        if fault == "think":
            message["reasoning_content"] = "hm"
        ended = "abort" if fault == "abort" else "length" if rollout.truncated else "stop"
        usage = {
            "prompt_tokens": len(TOKENIZER.encode(prompt)),
            "completion_tokens": len(rollout.response_ids),
        }
        if isinstance(fault, dict):
            usage |= fault
        said = {"message": message} if chat else {"text": rollout.text}
        named = {} if self.server.answers_as is None else {"model": self.server.answers_as}
        return {**named, "choices": [{**said, "finish_reason": ended}], "usage": usage}

    def _without_end(self, piece: bytes) -> None:
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(piece)
                time.sleep(0.02)

    def _known(self) -> bool:
        if (
            self.server.key is None
            or self.headers.get("authorization") == f"Bearer {self.server.key}"
        ):
            return True
        self._say(401, {"error": {"message": "who are you?"}})
        return False

    def _say(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        self._write(status, json.dumps(data).encode(), headers or {})

    def _write(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serving(**how: Any) -> Iterator[TinyServer]:
    """A server that is gone when the block is left."""
    server = TinyServer(**how)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = server.server_address[1]
    server.server_close()
    return port
