"""The interface of samplers: a sampler draws responses from a model and returns their tokens and
log-probs.

Common random numbers: those of a response depend only on its `noise_key` and the position in the
response, never on the batch. Runs of one study seed use equal keys for equal (step, prompt,
sample), so that equal policies give equal responses, and similar policies similar ones.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gspo_lab.common.plain_data import Integers, Strings
from gspo_lab.tasks.base import Turn

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one response.

    `noise_key`: the 63-bit key of its random numbers. `max_tokens`: a lower limit for it.
    `given_ids`: the response so far, fed after the prompt and not counted. The next token uses the
    random numbers of position len(given_ids), so that pieces from unchanged weights are the whole.
    """

    problem: str
    prompt_ids: Integers
    sample: int
    noise_key: int
    max_tokens: int | None = None
    given_ids: Integers = ()

    @property
    def fed_ids(self) -> Integers:
        """The prompt and the response so far."""
        return self.prompt_ids + self.given_ids


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw.

    `temperature` 0 is greedy. A `stop` text ends a response; its tokens stay, its text is cut.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 64
    stop: Strings = ()


@dataclass(slots=True)
class Rollout:
    """One sampled response, or its new tokens after the given ones, with the sampler's log-prob of
    each under the distribution drawn from (logits / temperature, renormalised over the top_p set).
    `text`: the complete response.

    `routes`: [P + G + T - 1, L, K] with G given tokens, a MoE model's experts at each input
    position, if requested. `loss_mask`: False at tokens that the policy did not choose (log-prob
    0); None: it chose all. `versions`: per token the rollout batches that its policy was trained
    on. `turns`: of a task with several turns."""

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
        """The number of tokens that the policy chose."""
        return sum(self.full_loss_mask)

    @property
    def full_loss_mask(self) -> list[bool]:
        """The loss mask, written out where the policy chose every token."""
        return everywhere(self.response_ids) if self.loss_mask is None else self.loss_mask


def everywhere(tokens: Sequence[Any]) -> list[bool]:
    """A mask that is True at each of the tokens."""
    return [True for _ in tokens]


def joined(earlier: Rollout, later: Rollout) -> Rollout:
    """`earlier` and its continuation `later` as one response to the earlier request. Tokens between
    them come from outside the policy: masked, log-prob 0, with the version that read them. Routes
    are those of the pass that drew the next token."""
    request = earlier.request
    given_ids = list(later.request.given_ids)
    answered = [*request.given_ids, *earlier.response_ids]
    outside = given_ids[len(answered) :]
    if later.request.prompt_ids != request.prompt_ids or given_ids[: len(answered)] != answered:
        raise ValueError(
            f"{later.request.problem}: the given tokens do not begin with the earlier response"
        )
    loss_mask = None
    if earlier.loss_mask is not None or later.loss_mask is not None or outside:
        hidden = [False for _ in outside]
        loss_mask = [*earlier.full_loss_mask, *hidden, *later.full_loss_mask]
    routes = None
    versions = None
    if earlier.routes is not None and later.routes is not None:
        import numpy as np

        routes = np.concatenate([earlier.routes, later.routes[len(earlier.routes) :]])
    if earlier.versions is not None and later.versions is not None:
        versions = earlier.versions + later.versions[:1] * len(outside) + later.versions
    return Rollout(
        request=request,
        response_ids=[*earlier.response_ids, *outside, *later.response_ids],
        logprobs=[*earlier.logprobs, *(0.0 for _ in outside), *later.logprobs],
        text=later.text,
        truncated=later.truncated,
        routes=routes,
        loss_mask=loss_mask,
        versions=versions,
    )


class Sampler(Protocol):
    """Samples from one model.

    The trainer changes that model's weights in place, then calls `refresh`.
    """

    separate: bool
    """Whether it computes with other weights, precision or kernels than that model."""
    returns_routes: bool
    """Whether it can return the experts of each position."""
    continues: bool
    """Whether it continues `Request.given_ids`; False if the attribute is missing."""

    def sample(
        self, requests: Sequence[Request], sampling: Sampling, *, routes: bool = False
    ) -> list[Rollout]:
        """One rollout per request, in the order of the requests."""
        ...

    def refresh(self) -> None:
        """Sample from the model's present weights from now on.

        LabError if a check of this fails.
        """
        ...

    def pause(self) -> None:
        """Free the memory that only sampling needs, until the next `refresh`."""
        ...

    def facts(self) -> dict[str, str]:
        """Facts for a run's record; equal runs record equal facts."""
        ...


def noise_key(*fields: Any) -> int:
    """A 63-bit key from anything printable.

    Example: `noise_key(seed, "rollout", step, prompt_index, sample)`."""
    digest = hashlib.blake2b("\x1f".join(map(str, fields)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
