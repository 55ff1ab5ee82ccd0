"""What no single key can say: settings that only together make no sense, each as one line with the
way out.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise

from gspo_lab.common.keys import COLDEST, Key
from gspo_lab.common.registry import nearest, unlisted
from gspo_lab.study.declaration import ArmsByName
from gspo_lab.study.dotted_keys import BAND
from gspo_lab.study.schema import KEYS, Settings, unread
from gspo_lab.study.verdict_tables import VerdictTable, score_named
from gspo_lab.training.objectives.presets import Objective
from gspo_lab.training.objectives.settings import CLIP_KEYS

WITHOUT_GROUP = {"gae", "batch-mean-std"}
"""The advantages that compare no response with others to its prompt."""

LEAST_SEEDS = 3
MOST_LOOKS = 8
"""The limits of `stats`, which this layer must not import."""
ROLLOUT = "rollout"
"""The benchmark name under which training answers are recorded."""


def broken_rules(
    arms: ArmsByName,
    verdict: VerdictTable,
    declared: Collection[str],
    compares_engines: object = False,
) -> list[str]:
    """One line per broken rule of a study whose single values are all valid.

    `arms` are those to be run, `declared` the names of all that the file has: the baseline may be
    among the latter. `compares_engines` is what the file says under this key.
    """
    out = _inside(arms) + _identical_arm_errors(arms) + _engines(arms, compares_engines)
    benches = next(iter(arms.values())).settings.bench if arms else []
    names = [bench.name for bench in benches]
    out += [
        f"bench: two benchmarks are named '{name}'"
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    if ROLLOUT in names:
        out.append(
            f"bench: '{ROLLOUT}' is what training answers are recorded under; give the benchmark"
            " another name"
        )
    if verdict.primary is not None:
        score = score_named(verdict.primary)
        if score.bench not in names:
            bench, colon, kind = verdict.primary.rpartition(":")
            if colon and bench in names:
                out.append(
                    f"verdict.primary: {bench} has no score '{kind}'; it has {bench},"
                    f" {bench}:reward"
                )
            else:
                listed = unlisted(verdict.primary, names, "this study has")
                out.append(f"verdict.primary: no benchmark {listed}")
        out += [
            f"verdict.primary = '{verdict.primary}' needs {score.k} answers to a problem at every"
            f" evaluation, and bench.{bench.name}.samples = {bench.samples}: give at least"
            f" {score.k}"
            for bench in benches
            if bench.name == score.bench and bench.samples < score.k
        ]
    if verdict.baseline is not None and verdict.baseline not in declared:
        listed = unlisted(verdict.baseline, declared, "this study has")
        out.append(f"verdict.baseline: no arm {listed}")
    return out


def broken_looks(looks: Sequence[int] | None, seeds: int) -> list[str]:
    """What is wrong with `verdict.looks` in a study of so many seeds."""
    if not looks:
        return []
    declared = f"verdict.looks = [{', '.join(map(str, looks))}]"
    if any(later <= earlier for earlier, later in pairwise(looks)):
        return [
            f"{declared}: each look comes after more seeds than the one before; write them in"
            " rising order"
        ]
    if looks[0] < LEAST_SEEDS:
        return [
            f"{declared}: after {looks[0]} there is no interval; look after {LEAST_SEEDS} seeds or"
            " more"
        ]
    if len(looks) > MOST_LOOKS:
        return [f"{declared}: {len(looks)} looks; declare {MOST_LOOKS} at most"]
    if seeds < looks[-1]:
        return [
            f"{declared}: the last look is after {looks[-1]} seeds, and the study has {seeds};"
            f" give it {looks[-1]}"
        ]
    return []


def broken_question(verdict: VerdictTable, claims: Collection[str]) -> list[str]:
    """What is wrong with `verdict.question` in a study that declares these claims."""
    if verdict.question == "stability" and verdict.looks:
        return [
            "verdict.looks: a look is at the score, and question = 'stability' is answered by all"
            " runs; leave it out"
        ]
    if isinstance(verdict.question, str):
        return []
    declared = (
        f"this study has {', '.join(claims)}"
        if claims
        else "this study declares none, under [[claim]]"
    )
    return [
        f"verdict.question: no claim '{name}'{nearest(name, claims)}; {declared}"
        for name in verdict.question
        if name not in claims
    ]


def _inside(arms: ArmsByName) -> list[str]:
    """The mistakes within single arms; one that all arms share is reported once."""
    lines: dict[str, list[str]] = {}
    for arm in arms.values():
        for line in broken_within(arm.settings):
            lines.setdefault(line, []).append(arm.name)
    shared = [line for line, names in lines.items() if len(names) == len(arms)]
    mistakes = list(shared)
    for line, names in lines.items():
        if line not in shared:
            mistakes += [f"arm.{name}: {line}" for name in names]
    return mistakes


def broken_within(settings: Settings) -> Iterator[str]:
    """What is wrong within the settings of one run."""
    for rule in WITHIN:
        yield from rule(settings)


def _sampling(settings: Settings) -> Iterator[str]:
    """Mistakes of how a rollout batch is drawn and divided."""
    rollout = settings.rollout
    update = settings.update
    objective = settings.objective
    if rollout.prompts_per_step % update.minibatches:
        yield (
            f"rollout.prompts_per_step = {rollout.prompts_per_step} cannot be split into "
            f"update.minibatches = {update.minibatches} equal parts"
        )
    if rollout.float32_head and rollout.sampler != "transformers":
        yield (
            f"rollout.float32_head: '{rollout.sampler}' does not know it; use rollout.sampler ="
            " 'transformers'"
        )
    nucleus = (
        "with rollout.top_p < 1: the sampler's log-probs are renormalised over the nucleus and are"
        " not the policy's"
    )
    if rollout.top_p < 1 and update.old_logprobs == "sampler":
        yield (
            f"update.old_logprobs = 'sampler' {nucleus}; use top_p = 1 or old_logprobs = 'trainer'"
        )
    if rollout.top_p < 1 and objective.off_policy_mask is not None:
        yield f"objective.off_policy_mask {nucleus}; use top_p = 1, or leave off_policy_mask out"
    if objective.mismatch_correction != "none" and update.old_logprobs == "sampler":
        yield (
            f"objective.mismatch_correction = '{objective.mismatch_correction}' with"
            " update.old_logprobs = 'sampler': the ratio then holds the mismatch already; use"
            " old_logprobs = 'trainer' or mismatch_correction = 'none'"
        )


def _bench_answers(settings: Settings) -> Iterator[str]:
    """Mistakes of temperatures and answers of benchmarks."""
    for bench in settings.bench:
        if 0 < bench.temperature < COLDEST:
            heat = f"{bench.temperature:g}: give 0 for greedy, or at least {COLDEST:g}"
            yield f"bench.{bench.name}.temperature = {heat}"
        if bench.temperature == 0 and (bench.decisive_samples or 1) > 1:
            yield (
                f"bench.{bench.name}.decisive_samples = {bench.decisive_samples} with"
                " temperature = 0: greedy answers to a problem are all the same; give it a"
                " temperature, or ask once"
            )


def _advantage(settings: Settings) -> Iterator[str]:
    """Mistakes of the advantage together with groups, turns and adapters."""
    rollout = settings.rollout
    update = settings.update
    objective = settings.objective
    advantage = objective.advantage
    if advantage == "gae" and update.lora_rank:
        rank = f"update.lora_rank = {update.lora_rank}"
        yield (
            f"objective.advantage = 'gae' with {rank}: a critic is trained whole; use lora_rank = 0"
        )
    if rollout.group_size == 1 and advantage not in WITHOUT_GROUP:
        yield (
            f"rollout.group_size = 1 with advantage = '{advantage}', which compares the responses"
            f" to a prompt: give 2 or more, or advantage = {_either(WITHOUT_GROUP)}"
        )
    if objective.turn_credit == "turn" and advantage not in (
        "group-mean-std",
        "group-mean",
        "leave-one-out",
    ):
        yield (
            f"objective.turn_credit = 'turn' with advantage = '{advantage}': turns are compared"
            " within their group; use advantage = 'group-mean-std', 'group-mean' or"
            " 'leave-one-out'"
        )


def _dynamic_sampling(settings: Settings) -> Iterator[str]:
    """Mistakes of `rollout.dynamic_sampling`."""
    rollout = settings.rollout
    objective = settings.objective
    if not rollout.dynamic_sampling:
        return
    drop = f"rollout.dynamic_sampling = {rollout.dynamic_sampling}"
    if rollout.tokens_per_step is not None:
        yield (
            f"{drop} with rollout.tokens_per_step: a group that waits cannot be replaced; leave"
            " one out"
        )
    if objective.advantage in WITHOUT_GROUP:
        yield (
            f"{drop} with advantage = '{objective.advantage}', which compares no response with"
            " others to its prompt: a group that earned the same would have a gradient; leave it"
            " out"
        )
    if objective.advantage == "gdpo":
        yield (
            f"{drop} with advantage = 'gdpo': rewards by name may differ where their sum does"
            " not; leave it out"
        )
    if objective.turn_credit == "turn":
        yield (
            f"{drop} with turn_credit = 'turn': turns may differ where responses earned the"
            " same; leave it out"
        )


def _overlong(settings: Settings) -> Iterator[str]:
    """Mistakes of `rollout.overlong_buffer`."""
    rollout = settings.rollout
    objective = settings.objective
    if rollout.overlong_buffer is None:
        return
    if objective.advantage == "gdpo":
        yield (
            "rollout.overlong_buffer with advantage = 'gdpo': length costs the one reward, and"
            " rewards by name train; leave it out, or have the grader return a reward for"
            " length"
        )
    if objective.turn_credit == "turn":
        yield (
            "rollout.overlong_buffer with turn_credit = 'turn': length costs a response's"
            " reward, and turns are compared by what each earned; leave it out"
        )
    if rollout.max_tokens is not None and rollout.overlong_buffer > rollout.max_tokens:
        most = f"the token limit, rollout.max_tokens = {rollout.max_tokens}"
        yield (
            f"rollout.overlong_buffer = {rollout.overlong_buffer} is more than {most}; give it"
            " some of the last tokens"
        )


def _calibrated(settings: Settings) -> Iterator[str]:
    """Mistakes of a clip range that a pilot is to find."""
    update = settings.update
    objective = settings.objective
    calibrated = "objective.clip = 'calibrated'"
    if objective.clip != "calibrated":
        return
    level = objective.importance_sampling_level
    signs = f"a pilot counts moves by the sign of each response's one advantage; give {CLIP_KEYS}"
    if objective.turn_credit == "turn":
        yield f"{calibrated} with turn_credit = 'turn': {signs}"
    if objective.advantage == "gae" and level != "sequence":
        yield (
            f"{calibrated} with advantage = 'gae' at level '{level}': {signs}, or the level"
            " 'sequence'"
        )
    if update.per_rollout_batch < 2:
        yield (
            f"{calibrated} needs update.minibatches >= 2: the first update of a rollout batch"
            " has all ratios 1 and leaves nothing to calibrate"
        )


def _loss(settings: Settings) -> Iterator[str]:
    """Mistakes of the policy loss, its bounds and its aggregation."""
    objective = settings.objective
    low = objective.mismatch_low
    high = objective.mismatch_high
    if low is not None and high is not None and low >= high:
        yield f"objective.mismatch_low = {low:g} must be smaller than mismatch_high = {high:g}"
    if objective.aggregation == "constant" and objective.aggregation_constant <= 1:
        yield (
            "objective.aggregation_constant: with aggregation = 'constant' give a length in"
            " tokens, > 1"
        )
    yield from (f"objective.{line}" for line in objective.loss.refuses(objective))
    if objective.policy_loss != "clip":
        clips = {
            "dual_clip": objective.dual_clip is not None,
            "clip = 'calibrated'": objective.clip == "calibrated",
        }
        for key in [key for key, is_set in clips.items() if is_set]:
            yield (
                f"objective.{key} with policy_loss = '{objective.policy_loss}': it belongs to"
                " policy_loss = 'clip'"
            )
    if objective.truncated != "train" and objective.regularised:
        yield (
            f"objective.truncated = '{objective.truncated}' with kl_coef or entropy_coef > 0: their"
            " terms would still train truncated responses; set both to 0, or truncated = 'train'"
        )
    if objective.clip_range[0] == 1 and objective.loss.lower_bound:
        yield (
            f"{BAND[0]}: give a number below 1; only policy_loss = 'cispo' goes without a"
            " lower bound"
        )


WITHIN = (
    _sampling,
    _bench_answers,
    _advantage,
    _dynamic_sampling,
    _overlong,
    _calibrated,
    _loss,
)
"""The rules within the settings of one run."""


def _identical_arm_errors(arms: ArmsByName) -> list[str]:
    out = []
    resolved = {name: arm.flat_settings for name, arm in arms.items()}
    for a, b in combinations(arms, 2):
        # A preset's name alone changes nothing; its values stand beside it.
        keys = [key for key in {**resolved[a], **resolved[b]} if key != "objective.preset"]
        different = [key for key in keys if resolved[a].get(key) != resolved[b].get(key)]
        why = {key: _idle(key, arms[a].settings, arms[b].settings) for key in different}
        if not different:
            out.append(
                f"arm.{b}: changes nothing that arm.{a} does not have too; the two would be the"
                " same run twice"
            )
        elif all(why.values()):
            reasons = "; ".join(dict.fromkeys(reason for reason in why.values() if reason))
            out.append(
                f"arm.{a} and arm.{b} differ only in {', '.join(different)}, and would be"
                f" identical: {reasons}"
            )
    return out


def _engines(arms: ArmsByName, compares: object) -> list[str]:
    """The mistake of arms with different engines, which differ in more than their settings."""
    if not isinstance(compares, bool):
        return [f"compares_engines = {compares!r}: true or false"]
    if compares or len({repr(arm.settings.engine) for arm in arms.values()}) < 2:
        return []
    names = ", ".join(sorted({arm.settings.engine.name for arm in arms.values()}))
    return [
        f"arms differ in their engine ({names}), which they may only where that is the study's"
        " question: say so with compares_engines = true, or give all the same"
    ]


def _idle(key: str, a: Settings, b: Settings) -> str | None:
    """Why a difference in `key` cannot make two arms differ; None where it can."""
    objectives = (a.objective, b.objective)
    reasons = [unread(key, settings) for settings in (a, b)]
    if all(reasons):
        return f"{key.removeprefix('objective.')} {reasons[0]}"
    losses = {objective.policy_loss: objective.loss for objective in objectives}
    levels = {objective.importance_sampling_level for objective in objectives}
    averaged = {objective.advantage for objective in objectives} == {"gae"} and "sequence" in levels
    if (
        key == "objective.importance_sampling_level"
        and not averaged
        and not any(loss.ratio == "level" for loss in losses.values())
    ):
        return f"importance_sampling_level does nothing with policy_loss = {_either(losses)}"
    if (
        key == "rollout.staleness"
        and min(a.rollout.staleness, b.rollout.staleness) >= max(a.steps, b.steps) - 1
    ):
        return f"with steps = {a.steps} every rollout batch is drawn from the starting weights"
    # One on-policy update of a rollout batch: old and new log-probs are those of one forward pass,
    # all ratios are 1.
    once = all(
        s.update.minibatches * s.update.epochs == 1 and s.update.old_logprobs == "trainer"
        for s in (a, b)
    )
    replays_itself = key == "routing_replay" and {a.routing_replay, b.routing_replay} <= {
        "none",
        "old-policy",
    }
    alike = key == "objective.policy_loss" and all(
        loss.reinforce_on_policy for loss in losses.values()
    )
    if key in ("objective.importance_sampling_level", "objective.policy_loss") and _means_differ(
        objectives
    ):
        return None
    if once and (KEYS.get(key, Key()).affects == "ratio" or replays_itself or alike):
        return "with update.minibatches = 1 and epochs = 1 every ratio is 1; use minibatches >= 2"
    return None


def _means_differ(objectives: Sequence[Objective]) -> bool:
    """Whether sequence and token ratios differ even at 1, because tokens of a response have unequal
    weights.

    A sequence ratio gives each token the mean of the response's advantages or weights.
    """
    by_token = any(
        objective.turn_credit == "turn"
        or (objective.advantage == "gae" and objective.importance_sampling_level != "sequence")
        or objective.mismatch_correction in ("tis", "icepop")
        for objective in objectives
    )
    return by_token and any(
        "sequence" in (side.importance_sampling_level, side.loss.ratio) for side in objectives
    )


def _either(losses: Collection[str]) -> str:
    return " or ".join(f"'{loss}'" for loss in sorted(losses))
