"""The checks that say whether two runs of one seed are a pair: each compares two traces and knows what may differ.

settings ─ code ─ packages ─ device ─ numerics        what the runs were made with
weights ─ tokenizer ─ chat template ─ grader          what they started from
prompts ─ first rollout ─ first mini-batches          what they did before any difference could show
benchmark items ─ protocol ─ grader ─ base score      how they are scored
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from gspo_lab.matching.settings import declared, differing, shown, under
from gspo_lab.matching.trace import IDENTITIES, ROLLOUT, Trace

State = Literal["equal", "differs as declared", "differs undeclared", "not recorded"]

EQUAL: State = "equal"
DECLARED: State = "differs as declared"
UNDECLARED: State = "differs undeclared"
UNKNOWN: State = "not recorded"


@dataclass(frozen=True)
class Check:
    """One thing compared. `parts` names what differs (dotted keys, packages, steps); empty where nothing does."""

    name: str
    state: State
    detail: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sides:
    """Two runs of one seed. `stated` are the declared settings in which they really differ."""

    one: Trace
    other: Trace
    stated: tuple[str, ...]
    unstated: tuple[str, ...]

    def excuses(self, *names: str) -> list[str]:
        """The declared differences in one of the tables or keys `names`."""
        return [key for key in self.stated if under(key, names)]

    def values(self, key: str) -> str:
        return self.told(self.one.settings.get(key), self.other.settings.get(key))

    def told(self, one: Any, other: Any) -> str:
        return f"{shown(one)} in {self.one.arm}, {shown(other)} in {self.other.arm}"

    def silent(self, *known: bool) -> str:
        """Who recorded nothing: `known` says of each side whether it did."""
        names = [trace.arm for trace, has in zip((self.one, self.other), known, strict=True) if not has]
        return f"nothing recorded by {' and '.join(names)}"


def sides(one: Trace, other: Trace, study: Mapping[str, Any]) -> Sides:
    """Two traces with what the study's arms declare of them."""
    keys = differing(one.settings, other.settings)
    allowed = chain.from_iterable(study["arms"][trace.arm]["declared"] for trace in (one, other))
    stated = declared(keys, allowed, one.settings, other.settings)
    return Sides(one, other, tuple(stated), tuple(key for key in keys if key not in stated))


def settings(pair: Sides) -> Check:
    """Every resolved setting but the benchmarks', which are a check of their own."""
    odd = [key for key in pair.unstated if not under(key, ["bench"])]
    if odd:
        return Check("settings", UNDECLARED, _each(odd, pair.values), tuple(odd))
    if pair.stated:
        return Check("settings", DECLARED, _each(pair.stated, pair.values), pair.stated)
    return Check("settings", EQUAL, f"{len(pair.one.settings)} settings")


def declaration(pair: Sides, arms: Mapping[str, Any], bands: Mapping[str, Any]) -> Check:
    """Whether both runs were made with what study.json says of their arms; `arms`: its flat settings and declared."""
    parts, said = [], []
    for trace in (pair.one, pair.other):
        wanted, stated = arms[trace.arm]
        for key in differing(trace.settings, wanted):
            parts.append(f"{trace.arm}: {key}")
            said.append(
                f"{trace.id} ran with {key} = {shown(trace.settings.get(key))}, declared {shown(wanted.get(key))}"
            )
        if sorted(trace.declared) != sorted(stated):
            parts.append(f"{trace.arm}: declared keys")
            said.append(f"{trace.id} declares {_list(trace.declared)}, study.json {_list(stated)}")
        for key in differing(trace.bands, bands) if trace.bands and bands else []:
            parts.append(f"{trace.arm}: reference_bands.{key}")
            said.append(f"{trace.id} counts would_clip_* at another range of {key}")
    if parts:
        return Check("declaration", UNDECLARED, "; ".join(said), tuple(dict.fromkeys(parts)))
    return Check("declaration", EQUAL, "both runs were made as study.json declares them")


def facts(pair: Sides, name: str, keys: Sequence[str], *excused: str, null_is_a_value: bool = False) -> Check:
    """Facts of the two workers under `keys`; those of a declared setting in `excused` may differ."""
    found = [{key: v for key, v in side.facts.items() if under(key, keys)} for side in (pair.one, pair.other)]
    one, other = found
    if not null_is_a_value:
        one, other = ({key: v for key, v in side.items() if v is not None} for side in found)
    if not one or not other:
        return Check(name, UNKNOWN, pair.silent(bool(one), bool(other)))
    odd = differing(one, other)
    short = {key: key.removeprefix("packages.").removeprefix("flags.") for key in odd}
    if not odd:
        return Check(name, EQUAL, ", ".join(_fact(key, value) for key, value in sorted(one.items())))
    said = "; ".join(f"{short[key]}: {pair.told(one.get(key), other.get(key))}" for key in odd)
    return _differs(name, said, tuple(short.values()), pair.excuses(*excused))


def code(pair: Sides) -> Check:
    """The commit; with uncommitted changes it does not say which code ran."""
    found = facts(pair, "code", ["code"])
    if found.state == EQUAL and str(pair.one.facts["code"]).endswith("+"):
        return Check("code", UNKNOWN, f"commit {found.detail}, with uncommitted changes that were not recorded")
    return found


def weights(pair: Sides) -> Check:
    """The digest of the starting weights, known only from a worker that began its run at step 0."""
    if not (pair.one.begun and pair.other.begun):
        return Check("weights", UNKNOWN, pair.silent(pair.one.begun, pair.other.begun))
    return facts(pair, "weights", ["weights"], "model")


COVERED = (
    *("code", "gspo_lab", "python", "packages", "device", "threads", "flags"),
    *("weights", "tokenizer", "chat_template", "grader"),
)
"""Facts that have a check of their own."""


def other_facts(pair: Sides) -> Check:
    """Whatever else an engine found out about itself, so that nothing recorded goes uncompared."""
    rest = {key for side in (pair.one, pair.other) for key in side.facts if not under(key, COVERED)}
    if not rest:
        return Check("other facts", EQUAL, "none recorded by either")
    return facts(pair, "other facts", sorted(rest), "model")


def restarts(pair: Sides) -> Check:
    """Every worker that took a run up again must have been like the one that began it."""
    parts, said, times = [], [], 0
    for trace in (pair.one, pair.other):
        known = [start for start in trace.starts if start.facts is not None]
        if not known:
            recorded = [any(start.facts is not None for start in t.starts) for t in (pair.one, pair.other)]
            return Check("restarts", UNKNOWN, pair.silent(*recorded))
        first = known[0]
        for start in known[1:]:
            assert first.facts is not None
            assert start.facts is not None
            odd = differing(first.facts, start.facts)
            if start.step != first.step:  # the digest is then that of the weights it went on from
                odd = [key for key in odd if key != "weights"]
            parts += [f"{trace.arm}: {key}" for key in odd]
            said += [
                f"{trace.id} went on at step {start.step} with {key} = {shown(start.facts.get(key))}, "
                f"before {shown(first.facts.get(key))}"
                for key in odd
            ]
        times += len(trace.starts) - 1
    if parts:
        return Check("restarts", UNDECLARED, "; ".join(said), tuple(dict.fromkeys(parts)))
    return Check("restarts", EQUAL, f"{times} restarts, all by like workers" if times else "one worker each")


def grader(pair: Sides) -> Check:
    """The reward function and its version, as the task names it and as every kept training answer was graded."""
    one, other = (_graders(side, ROLLOUT) | {side.facts.get("grader")} - {None} for side in (pair.one, pair.other))
    return _same_graders(pair, "grader", one, other)


def prompts(pair: Sides) -> Check:
    """The stream of prompt ids, step by step, and the texts of the prompts that were kept."""
    one, other = pair.one.prompts, pair.other.prompts
    common = sorted(one.keys() & other.keys())
    if not common:
        return Check("prompts", UNKNOWN, pair.silent(bool(one), bool(other)))
    parted = next((step for step in common if one[step] != other[step]), None)
    if parted is not None:
        said = f"the streams of prompts part at step {parted}"
        return _differs("prompts", said, (f"step {parted}",), pair.excuses("rollout.prompts_per_step"))
    kept = [step for bench, step in _common_asked(pair) if bench == ROLLOUT]
    worded = next((step for step in kept if not _same_items(pair, ROLLOUT, step)), None)
    if worded is not None:
        said = f"equal prompt ids, but the texts or references kept of step {worded} differ"
        return Check("prompts", UNDECLARED, said, (f"step {worded}, texts",))
    return Check("prompts", EQUAL, f"the same prompts in the same order over {len(common)} steps")


SAMPLING = ("model", "rollout")


def first_rollout(pair: Sides) -> Check:
    """The token ids that each run sampled for itself at step 0."""
    return _first(pair, "first rollout", "rollout_digest", "token ids of step 0")


def first_logprobs(pair: Sides) -> Check:
    """The sampler's log-probs of those tokens, bit for bit."""
    return _first(pair, "first log-probs", "logprob_digest", "the sampler's log-probs of step 0")


def first_rewards(pair: Sides) -> Check:
    """The rewards of step 0: equal responses are graded equally."""
    one, other = pair.one.first, pair.other.first
    names = [name for name in one.keys() & other.keys() if not name.endswith("_digest")]
    if not names or "rollout_digest" not in one or "rollout_digest" not in other:
        known = ["rollout_digest" in side and "reward_mean" in side for side in (one, other)]
        return Check("first rewards", UNKNOWN, pair.silent(*known) if not all(known) else "no reward in common")
    odd = sorted(name for name in names if one[name] != other[name])
    if not odd:
        return Check("first rewards", EQUAL, f"mean reward {shown(one.get('reward_mean'))} at step 0")
    said = "; ".join(f"{name} at step 0: {pair.told(one[name], other[name])}" for name in odd)
    reasons = _sampled_apart(pair) if one["rollout_digest"] != other["rollout_digest"] else []
    return _differs("first rewards", said, tuple(odd), reasons)


def first_minibatches(pair: Sides) -> Check:
    """A step's first mini-batch meets the policy that sampled it: its ratios are 1 and nothing clips, in every step."""
    name, parts, said, steps = "first mini-batches", [], [], 0
    for trace in (pair.one, pair.other):
        known = [(step, values) for step, values in trace.identities if None not in values]
        if not known:
            held = [any(None not in values for _, values in t.identities) for t in (pair.one, pair.other)]
            return Check(name, UNKNOWN, pair.silent(*held))
        steps += len(known)
        broken = next(((step, values) for step, values in known if any(values)), None)
        if broken is not None:
            values = ", ".join(f"{key} {shown(v)}" for key, v in zip(IDENTITIES, broken[1], strict=True))
            parts.append(f"{trace.arm}, step {broken[0]}")
            said.append(f"{trace.id} at step {broken[0]}: {values}")
    if not parts:
        return Check(name, EQUAL, f"ratio 1 and clip 0 in all {steps} of them")
    apart = [t.arm for t in (pair.one, pair.other) if any(any(v or 0 for v in values) for _, values in t.identities)]
    sampler = {t.arm for t in (pair.one, pair.other) if t.settings.get("update.old_logprobs") == "sampler"}
    reasons = ["update.old_logprobs = sampler"] if sampler.issuperset(apart) else []
    return _differs(name, "; ".join(said), tuple(parts), reasons)


def benchmark_protocol(pair: Sides) -> Check:
    """How benchmarks are asked: problems, samples, temperature, nucleus, token limit, interval."""
    odd = [key for key in pair.unstated if under(key, ["bench"])]
    if odd:
        return Check("benchmark protocol", UNDECLARED, _each(odd, pair.values), tuple(odd))
    benches = [value for key, value in pair.one.settings.items() if under(key, ["bench"]) and key.endswith(".name")]
    said = f"equal settings of {_list(benches)}" if benches else "no benchmark declared by either"
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
        return Check(name, UNDECLARED, f"asked in one run only: {said}", tuple(f"{b}, step {s}" for b, s in alone))
    for bench, step in sorted(one & other):
        if not _same_items(pair, bench, step):
            where = first_item(pair.one, pair.other, bench, step)
            return Check(name, UNDECLARED, f"{bench} after step {step}: {where}", (f"{bench}, step {step}",))
    if not one & other:
        return Check(name, UNKNOWN, "no evaluation in common")
    answers = sum(pair.one.asked[key].answers for key in one & other)
    return Check(name, EQUAL, f"{len(one & other)} evaluations, {answers} answers, item by item")


def benchmark_grader(pair: Sides) -> Check:
    """Who extracted and graded the benchmarks' answers, in which version."""
    benches = sorted({bench for side in (pair.one, pair.other) for bench, _ in side.asked if bench != ROLLOUT})
    one, other = (
        {f"{bench} by {by}" for bench in benches for by in _graders(side, bench)} for side in (pair.one, pair.other)
    )
    return _same_graders(pair, "benchmark grader", one, other)


def base_score(pair: Sides) -> Check:
    """The score, and every word, of the starting models on the benchmarks."""
    name = "base score"
    benches = sorted(pair.one.base.keys() & pair.other.base.keys())
    if not benches:
        return Check(name, UNKNOWN, pair.silent(bool(pair.one.base), bool(pair.other.base)))
    parts, said = [], []
    for bench in benches:
        one, other = pair.one.base[bench], pair.other.base[bench]
        if one != other:
            parts.append(bench)
            said.append(f"{bench}: {pair.told(one, other)}")
        elif pair.one.asked[bench, 0].texts.digest() != pair.other.asked[bench, 0].texts.digest():
            parts.append(bench)
            said.append(f"{bench}: {shown(one)} in both, by different answers")
    if not parts:
        return Check(name, EQUAL, ", ".join(f"{bench} {shown(pair.one.base[bench])}" for bench in benches))
    return _differs(name, "; ".join(said), tuple(parts), pair.excuses("model", "rollout.sampler", "rollout.dtype"))


def all_checks(
    pair: Sides,
    arms: Mapping[str, Any],
    bands: Mapping[str, Any],
    first_item: Callable[[Trace, Trace, str, int], str],
) -> tuple[Check, ...]:
    """Every check of one pair, in the order in which a cause comes before its effects."""
    return (
        settings(pair),
        declaration(pair, arms, bands),
        code(pair),
        facts(pair, "packages", ["gspo_lab", "python", "packages"]),
        facts(pair, "device", ["device"]),
        facts(pair, "numerics", ["threads", "flags"]),
        restarts(pair),
        weights(pair),
        facts(pair, "tokenizer", ["tokenizer"], "model"),
        facts(pair, "chat template", ["chat_template"], "model", null_is_a_value=True),
        other_facts(pair),
        grader(pair),
        prompts(pair),
        first_rollout(pair),
        first_logprobs(pair),
        first_rewards(pair),
        first_minibatches(pair),
        benchmark_protocol(pair),
        benchmark_items(pair, first_item),
        benchmark_grader(pair),
        base_score(pair),
    )


def _first(pair: Sides, name: str, digest: str, what: str) -> Check:
    one, other = pair.one.first.get(digest), pair.other.first.get(digest)
    if one is None or other is None:
        return Check(name, UNKNOWN, pair.silent(one is not None, other is not None))
    if one == other:
        return Check(name, EQUAL, f"{what}: {shown(one)}")
    return _differs(name, f"{what}: {pair.told(one, other)}", ("step 0",), _sampled_apart(pair))


def _sampled_apart(pair: Sides) -> list[str]:
    """Why two runs may sample different first responses: other sampling is declared, or their noise is not shared."""
    uncoupled = any(side.settings.get("rollout.coupled") is False for side in (pair.one, pair.other))
    return [*pair.excuses(*SAMPLING), *(["rollout.coupled = false"] if uncoupled else [])]


def _differs(name: str, said: str, parts: tuple[str, ...], excuses: Iterable[str]) -> Check:
    reasons = list(dict.fromkeys(excuses))
    if reasons:
        return Check(name, DECLARED, f"{said} (declared: {_list(reasons)})", parts)
    return Check(name, UNDECLARED, said, parts)


def _same_graders(pair: Sides, name: str, one: set[Any], other: set[Any]) -> Check:
    if not one or not other:
        return Check(name, UNKNOWN, pair.silent(bool(one), bool(other)))
    if one == other:
        return Check(name, EQUAL, _list(sorted(one)))
    return Check(name, UNDECLARED, pair.told(_list(sorted(one)), _list(sorted(other))), tuple(sorted(one ^ other)))


def _graders(trace: Trace, bench: str) -> set[str]:
    return {by for (name, _), asked in trace.asked.items() if name == bench for by in asked.graders if by is not None}


def _common_asked(pair: Sides) -> list[tuple[str, int]]:
    return sorted(pair.one.asked.keys() & pair.other.asked.keys())


def _same_items(pair: Sides, bench: str, step: int) -> bool:
    one, other = pair.one.asked[bench, step], pair.other.asked[bench, step]
    return bool(one.items.digest() == other.items.digest())


def _each(keys: Sequence[str], say: Callable[[str], str]) -> str:
    return "; ".join(f"{key}: {say(key)}" for key in keys)


def _fact(key: str, value: Any) -> str:
    name = key.rpartition(".")[2] if key.startswith(("packages.", "flags.")) else key
    return f"{name} {'none' if value is None else shown(value)}"


def _list(names: Iterable[Any]) -> str:
    return ", ".join(str(name) for name in names) or "nothing"
