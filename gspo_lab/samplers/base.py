"""What a sampler is: it asks a model, and says exactly what it drew and how likely that was.

Coupled sampling: the random numbers of a response depend only on its `noise_key` and the position in the response,
never on the batch it is in. Runs of one study seed use equal keys for equal (step, prompt, sample), so that equal
policies say equal things and like policies say like things.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gspo_lab.tasks.base import Turn

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Request:
    """One response wanted: `prompt_ids` as the model sees them, `noise_key` the 63-bit key of its random numbers.

    `max_tokens` is this response's own limit, where it is lower than that of all: what the model's context leaves.
    `given_ids` is the response so far: fed after the prompt, not drawn anew, and not counted by `max_tokens`. The next
    token's random numbers are those of position len(given_ids), so that a response drawn in pieces from unchanged
    weights has the tokens of the one drawn at once.
    """

    problem: str
    prompt_ids: tuple[int, ...]
    sample: int
    noise_key: int
    max_tokens: int | None = None
    given_ids: tuple[int, ...] = ()

    @property
    def fed_ids(self) -> tuple[int, ...]:
        """All that the model sees before it draws: the prompt and the response so far."""
        return self.prompt_ids + self.given_ids


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw: `temperature` 0 is greedy; `stop` texts end a response: part of its tokens, not of its text."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 64
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Rollout:
    """One sampled response, or the tokens that were added to one: `response_ids` are those after the given ones.

    `logprobs` are the sampler's own: of the drawn token under the distribution drawn from (logits / temperature,
    renormalised over the top_p set where top_p < 1). `text` is the whole response's, what was given included.
    `routes` is [P + G + T - 1, L, K], G given tokens: the experts that computed each input position, prompt first (the
    last response token is never fed), only where asked for on a MoE model.
    `loss_mask` is False at the response tokens that others than the policy put there (a tool's output; their log-prob
    is 0); None: the policy chose every one. `versions`, where they are kept, is each token's policy: the rollout
    batches that had been trained on when it was drawn. `turns` are those of a task that has several: turns.py.
    """

    request: Request
    response_ids: list[int]
    logprobs: list[float]
    text: str
    truncated: bool
    routes: "npt.NDArray[np.int16] | None" = None
    loss_mask: list[bool] | None = None
    versions: list[int] | None = None
    turns: list[Turn] | None = None

    @property
    def written(self) -> int:
        """How many of the tokens the policy chose."""
        return len(self.response_ids) if self.loss_mask is None else sum(self.loss_mask)


def joined(earlier: Rollout, later: Rollout) -> Rollout:
    """`earlier` and its continuation, whose request gave it that response, as one response to the earlier request.

    What the later request gave beyond the earlier response is others' (a tool's output): off the loss mask, log-prob 0,
    of the version that read it. Routes are those of the pass that each next token was drawn from.
    """
    asked, before = earlier.request, len(earlier.request.given_ids)
    given = list(later.request.given_ids)
    theirs = given[before + len(earlier.response_ids) :]
    if later.request.prompt_ids != asked.prompt_ids or given != [
        *asked.given_ids,
        *earlier.response_ids,
        *theirs,
    ]:
        raise ValueError(f"{later.request.problem}: what was given is not what was answered before")
    masks = [one.loss_mask or [True] * len(one.response_ids) for one in (earlier, later)]
    whole = earlier.loss_mask is None and later.loss_mask is None and not theirs
    routes, versions = None, None
    if earlier.routes is not None and later.routes is not None:
        import numpy as np

        routes = np.concatenate([earlier.routes, later.routes[len(earlier.routes) :]])
    if earlier.versions is not None and later.versions is not None:
        versions = earlier.versions + later.versions[:1] * len(theirs) + later.versions
    return Rollout(
        request=asked,
        response_ids=[*earlier.response_ids, *theirs, *later.response_ids],
        logprobs=[*earlier.logprobs, *[0.0] * len(theirs), *later.logprobs],
        text=later.text,
        truncated=later.truncated,
        routes=routes,
        loss_mask=None if whole else [*masks[0], *[False] * len(theirs), *masks[1]],
        versions=versions,
    )


class Sampler(Protocol):
    """Asks the model that it was made with. The trainer changes that model's weights in place, then calls `refresh`."""

    separate: bool
    """Whether it computes with anything but that model itself: other weights, precision or kernels."""
    tells_routes: bool
    """Whether it can say which experts computed each position."""
    continues: bool
    """Whether it goes on from `Request.given_ids`; a class that does not say so is not asked to."""

    def sample(self, requests: Sequence[Request], sampling: Sampling, *, routes: bool = False) -> list[Rollout]:
        """One rollout per request, in the order of the requests."""
        ...

    def refresh(self) -> None:
        """Draw from the model's present weights from now on. LabError where that cannot be shown to be so."""
        ...

    def rest(self) -> None:
        """Nothing is asked until the next `refresh`: give back the memory that only sampling needs."""
        ...

    def facts(self) -> dict[str, str]:
        """What a run should record of it, beside its name; equal runs record equal facts."""
        ...


def noise_key(*parts: Any) -> int:
    """A 63-bit key from anything printable: `noise_key(seed, "rollout", step, prompt_index, sample)`."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
