"""What two runs did: the prompts they asked, their first step, which must be the very same, and their benchmarks."""

from collections.abc import Callable, Sequence

from gspo_lab.matching.pairing import EQUAL, SAMPLING, STARTING, UNDECLARED, UNKNOWN, Check, Sides, differs
from gspo_lab.matching.settings import listed, shown
from gspo_lab.matching.trace import COUNTS, GIVEN, GROWN, Stream, Trace
from gspo_lab.records import ROLLOUT
from gspo_lab.study.dotted import under
from gspo_lab.study.schema import KEYS


def prompts(pair: Sides) -> Check:
    """The stream of prompt ids, step by step, and the texts of the prompts that were kept."""
    one, other = pair.one.prompts, pair.other.prompts
    count, parted = _compared(one, other)
    if not count:
        return Check("prompts", UNKNOWN, pair.silent(bool(one.steps), bool(other.steps)))
    if parted is not None:
        said = f"the streams of prompts part at step {parted}"
        return differs("prompts", said, (f"step {parted}",), pair.excuses("rollout.prompts_per_step", "task"))
    common = sorted(pair.one.asked.keys() & pair.other.asked.keys())
    kept = [step for bench, step in common if bench == ROLLOUT and not _varying(pair)]
    worded = next((step for step in kept if not _same_items(pair, ROLLOUT, step)), None)
    if worded is not None:
        said = f"equal prompt ids, but the texts or references kept of step {worded} differ"
        return differs("prompts", said, (f"step {worded}, texts",), pair.excuses("task"))
    return Check("prompts", EQUAL, f"the same prompts in the same order over {count} steps")


def _varying(pair: Sides) -> bool:
    """Whether what a step trains on follows from what was sampled: responses wait for a next step, or are dropped."""
    keys = ("rollout.tokens_per_step", "rollout.dynamic_sampling")
    return any(side.settings.get(key) for side in (pair.one, pair.other) for key in keys)


def _compared(one: Stream, other: Stream) -> tuple[int, int | None]:
    """How many steps two streams have in common, and the first at which they part."""
    if one.fingerprint == other.fingerprint:
        return one.steps, None
    common = sorted(one.digests.keys() & other.digests.keys())
    return len(common), next((step for step in common if one.digests[step] != other.digests[step]), None)


COSTS = (
    *(name for name, key in KEYS.items() if key.passes),
    *("objective.turn_credit", "rollout.dynamic_sampling", "rollout.overlong_buffer", "rollout.overlong_penalty"),
)
"""Settings that, declared, let the same first rollout cost other FLOPs: by the passes that are made over it, and by the
responses that train. It is no list of what takes time (`keys.Key.cost`): precision takes no FLOPs, and credit, which
decides whose advantage is 0, says little of the steps to come."""


def first_digest(pair: Sides, name: str, digest: str, what: str) -> Check:
    """A digest of what each run sampled for itself at step 0, bit for bit."""
    one, other = pair.one.first.get(digest), pair.other.first.get(digest)
    if one is None or other is None:
        return Check(name, UNKNOWN, pair.silent(one is not None, other is not None))
    if one == other:
        return Check(name, EQUAL, f"{what}: {shown(one)}")
    return differs(name, f"{what}: {pair.told(one, other)}", ("step 0",), _sampled_apart(pair))


def first_columns(pair: Sides, name: str, columns: Sequence[str]) -> Check:
    """Numbers of step 0: equal responses are graded equally, are as long and cost the same. What excuses another first
    rollout excuses them."""
    one, other = pair.one.first, pair.other.first
    names = [key for key in columns if key in one and key in other]
    if not names or "rollout_digest" not in one or "rollout_digest" not in other:
        known = [any(key in side for key in columns) and "rollout_digest" in side for side in (one, other)]
        return Check(name, UNKNOWN, pair.silent(*known) if not all(known) else "no number in common")
    odd = [key for key in names if one[key] != other[key]]
    if not odd:
        return Check(name, EQUAL, ", ".join(f"{key} {shown(one[key])}" for key in names))
    said = "; ".join(f"{key} at step 0: {pair.told(one[key], other[key])}" for key in odd)
    reasons = _sampled_apart(pair) if one["rollout_digest"] != other["rollout_digest"] else []
    if odd == ["flops_total"]:
        reasons += pair.excuses(*COSTS)
    if columns is COUNTS and "tokens_sampled_total" not in odd:
        # What is dropped and not replaced was sampled all the same; lengths are of what trains.
        reasons += pair.excuses("rollout.dynamic_sampling")
    return differs(name, said, tuple(odd), reasons)


def compute(pair: Sides) -> Check:
    """Prompts asked and updates made in all, which equal compute means; tokens and FLOPs are told, for answers may grow
    longer in one arm than in another."""
    name, one, other = "compute", pair.one.spent, pair.other.spent
    # Where what trains varies, the number of groups decides that of a step's updates, as answers' lengths do tokens'.
    given = [key for key in GIVEN if key != "updates_total" or not _varying(pair)]
    grew = [key for key in (*GIVEN, *GROWN) if key not in given]
    known = [set(given) <= side.keys() for side in (one, other)]
    if not all(known):
        ended = pair.one.finished and pair.other.finished
        return Check(name, UNKNOWN, pair.silent(*known) if ended else "counted when both have finished")
    odd = [key for key in given if one[key] != other[key]]
    if odd:
        said = "; ".join(f"{key}: {pair.told(one[key], other[key])}" for key in odd)
        reasons = pair.excuses("steps", "rollout", "update", "engine")
        # Where both drop groups, how many others each asked follows from what it had learnt.
        dropping = any(side.settings.get("rollout.dynamic_sampling") for side in (pair.one, pair.other))
        return differs(name, said, tuple(odd), reasons or ["rollout.dynamic_sampling"] * dropping)
    ratios = [f"{key} {other[key] / one[key]:.3f}" for key in grew if one.get(key) and key in other]
    grown = f"; {pair.other.arm} / {pair.one.arm}: {', '.join(ratios)}" if ratios else ""
    return Check(name, EQUAL, f"{', '.join(f'{key} {shown(one[key])}' for key in given)}{grown}")


def first_minibatches(pair: Sides) -> Check:
    """A step's first mini-batch meets the policy that sampled it: its ratios are 1 and nothing clips, in every step.

    Its ratios must be known; a loss without a clip has no clip fraction, and is held to them alone.
    """
    name, parts, said = "first mini-batches", [], []
    for trace in (pair.one, pair.other):
        if not trace.identities.known:
            return Check(name, UNKNOWN, pair.silent(*(t.identities.known > 0 for t in (pair.one, pair.other))))
        broken = trace.identities.broken
        if broken is not None:
            values = ", ".join(f"{key} {shown(v)}" for key, v in broken[1].items())
            parts.append(f"{trace.arm}, step {broken[0]}")
            said.append(f"{trace.id} at step {broken[0]}: {values}")
    if not parts:
        both = pair.one.identities, pair.other.identities
        known, clips = sum(one.known for one in both), sum(one.clips for one in both)
        some = f"ratio 1 in all {known} of them, clip 0 in the {clips} that count clips"
        return Check(name, EQUAL, some if clips < known else f"ratio 1 and clip 0 in all {known} of them")
    apart = [t.arm for t in (pair.one, pair.other) if t.identities.odd]
    sampler = {t.arm for t in (pair.one, pair.other) if t.settings.get("update.old_logprobs") == "sampler"}
    reasons = ["update.old_logprobs = sampler"] if sampler.issuperset(apart) else []
    return differs(name, "; ".join(said), tuple(parts), reasons)


def benchmark_protocol(pair: Sides) -> Check:
    """How benchmarks are asked: problems, samples, temperature, nucleus, token limit, interval."""
    odd = [key for key in pair.unstated if under(key, ["bench"])]
    if odd:
        return Check("benchmark protocol", UNDECLARED, pair.values(odd), tuple(odd))
    benches = [value for key, value in pair.one.settings.items() if under(key, ["bench"]) and key.endswith(".name")]
    said = f"equal settings of {listed(benches)}" if benches else "no benchmark declared by either"
    return Check("benchmark protocol", EQUAL, said)


def benchmark_items(pair: Sides, first_item: Callable[[Trace, Trace, str, int], str]) -> Check:
    """Which problems were asked, how often, in which order, with which text and reference, at every evaluation.

    `first_item` names the first question in which two runs' evaluations differ.
    """
    name = "benchmark items"
    one, other = ({key for key in side.asked if key[0] != ROLLOUT} for side in (pair.one, pair.other))
    if not one or not other:
        return Check(name, UNKNOWN, pair.silent(bool(one), bool(other)))
    if pair.one.finished and pair.other.finished and one != other:
        alone = sorted(one ^ other)
        said = ", ".join(f"{bench} after step {step}" for bench, step in alone)
        parts = tuple(f"{bench}, step {step}" for bench, step in alone)
        return differs(name, f"asked in one run only: {said}", parts, pair.excuses("steps", "bench", "task"))
    for bench, step in sorted(one & other):
        if not _same_items(pair, bench, step):
            where = f"{bench} after step {step}: {first_item(pair.one, pair.other, bench, step)}"
            return differs(name, where, (f"{bench}, step {step}",), pair.excuses("task"))
    if not one & other:
        return Check(name, UNKNOWN, "no evaluation in common")
    answers = sum(pair.one.asked[key].answers for key in one & other)
    return Check(name, EQUAL, f"{len(one & other)} evaluations, {answers} answers, item by item")


def benchmark_grader(pair: Sides) -> Check:
    """Who extracted and graded the benchmarks' answers, in which version."""
    benches = sorted({bench for side in (pair.one, pair.other) for bench, _ in side.asked if bench != ROLLOUT})
    sides = (pair.one, pair.other)
    one, other = ({f"{bench} by {by}" for bench in benches for by in side.graders(bench)} for side in sides)
    return pair.same_graders("benchmark grader", one, other)


def base_score(pair: Sides) -> Check:
    """The score, and every word, of the starting models on the benchmarks."""
    name = "base score"
    benches = sorted(pair.one.base.keys() & pair.other.base.keys())
    if not benches:
        return Check(name, UNKNOWN, pair.silent(bool(pair.one.base), bool(pair.other.base)))
    parts, said = [], []
    logged = [bench for bench in benches if any((bench, 0) not in side.asked for side in (pair.one, pair.other))]
    if logged:
        told = (f"{bench}: {pair.told(pair.one.base[bench], pair.other.base[bench])}, as logged" for bench in logged)
        return Check(name, UNKNOWN, "; ".join(told))
    for bench in benches:
        one, other = pair.one.base[bench], pair.other.base[bench]
        if one != other:
            parts.append(bench)
            said.append(f"{bench}: {pair.told(one, other)}")
        elif pair.one.asked[bench, 0].texts != pair.other.asked[bench, 0].texts:
            parts.append(bench)
            said.append(f"{bench}: {shown(one)} in both, by different answers")
    if not parts:
        return Check(name, EQUAL, ", ".join(f"{bench} {shown(pair.one.base[bench])}" for bench in benches))
    return differs(name, "; ".join(said), tuple(parts), pair.excuses(*STARTING, "rollout.sampler", "rollout.dtype"))


def _sampled_apart(pair: Sides) -> list[str]:
    """Why two runs may sample different first responses: other sampling is declared, or their noise is not shared.

    Staleness is no such reason: whatever it is, the first rollouts are drawn from the starting weights.
    """
    sampling = [key for key in pair.excuses(*SAMPLING) if key != "rollout.staleness"]
    uncoupled = any(side.settings.get("rollout.coupled") is False for side in (pair.one, pair.other))
    return [*sampling, *(["rollout.coupled = false"] if uncoupled else [])]


def _same_items(pair: Sides, bench: str, step: int) -> bool:
    return pair.one.asked[bench, step].items == pair.other.asked[bench, step].items
