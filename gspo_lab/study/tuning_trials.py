"""`[tune]` read from a study, and its trials: another study, whose runs give no verdict.

    [tune]
    seeds = [100, 101]
    steps = 10
    [tune.values]
    update.learning_rate = [2e-4, 5e-4, 1e-3, 2e-3]

The arm `gspo` of the study `x` has the trials `gspo@0.0002` ... of the study `x-trials`, with the seeds of `[tune]`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from gspo_lab.registry import nearest
from gspo_lab.study.declaration import Arm, reference_bands
from gspo_lab.study.dotted_keys import differing, flat
from gspo_lab.study.schema import KEYS, Settings, TuneTable, cost
from gspo_lab.study.settings_validation import broken_within
from gspo_lab.study.study import Study
from gspo_lab.study.tune import REWARD, Tune, with_values
from gspo_lab.study.verdict_tables import VerdictTable, score_named

WORD = re.compile(r"[\w.+-]+", re.ASCII)
"""Text that may be part of a trial's name, which also names a folder."""
PILOTED = "clip = 'calibrated': a pilot finds its range, and trials have none; give fixed ones"


def read_tune(
    table: Any, arms: Mapping[str, Arm], seeds: Sequence[int], verdict: VerdictTable, problems: list[str]
) -> Tune | None:
    """The tuning of a study's arms, None without `[tune]`; mistakes go to `problems`."""
    if table is None or not arms:
        return None
    try:
        tune = TuneTable.model_validate(table)
    except ValidationError as error:
        for mistake in error.errors():
            where = ".".join(["tune", *map(str, mistake["loc"])])
            problems.append(f"{where}: {mistake['msg'][0].lower()}{mistake['msg'][1:]}")
        return None
    before = len(problems)
    problems += _odd_seeds(tune.seeds, seeds)
    benches = [bench.name for bench in next(iter(arms.values())).settings.bench]
    metric = tune.metric or verdict.primary or next(iter(benches), REWARD)
    if score_named(metric).bench not in (*benches, REWARD):
        has = ", ".join([*benches, REWARD])
        problems.append(f"tune.metric: no benchmark '{metric}'{nearest(metric, benches)}; it may be {has}")
    if odd := [name for name in tune.arm if name not in arms]:
        problems.append(f"tune.arm.{odd[0]}: no such arm{nearest(odd[0], arms)}; this study has {', '.join(arms)}")
    lists = {name: flat(tune.values) | flat(tune.arm.get(name, {})) for name in arms}
    for name, arm in arms.items():
        problems += [f"tune: arm {name}: {mistake}" for mistake in _odd_lists(lists[name], arm)]
    if len(problems) > before:
        return None
    numbers = {name: len(next(iter(values.values()))) for name, values in lists.items()}
    if len(set(numbers.values())) > 1:
        listed = ", ".join(f"{name} {number}" for name, number in numbers.items())
        problems.append(f"tune: every arm needs as many candidates as the others, for the same budget; it has {listed}")
        return None
    candidates = {name: _side_by_side(values) for name, values in lists.items()}
    declared = {name: {key: flat(arm.resolved)[key] for key in lists[name]} for name, arm in arms.items()}
    problems += _odd_candidates(candidates, arms)
    return Tune(
        metric=metric, seeds=tune.seeds, steps=tune.steps, eta=tune.eta, candidates=candidates, declared=declared
    )


def _side_by_side(lists: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _odd_seeds(seeds: Sequence[int], of_study: Sequence[int]) -> list[str]:
    out = []
    if any(not 0 <= seed < 2**63 for seed in seeds) or len(set(seeds)) < len(seeds):
        out.append(f"tune.seeds: whole numbers >= 0, each once; got {list(seeds)}")
    if both := sorted(set(seeds) & set(of_study)):
        out.append(
            f"tune.seeds: {', '.join(map(str, both))} {'are seeds' if both[1:] else 'is a seed'} of the study; what an "
            "arm chooses on them would be judged by them too, give the trials others"
        )
    return out


def _odd_lists(lists: Mapping[str, Any], arm: Arm) -> list[str]:
    """The mistakes in the lists of an arm."""
    choosable = [key for key in flat(arm.resolved) if key in KEYS and KEYS[key].arms == "choose"]
    out = []
    for key, values in lists.items():
        plain = isinstance(values, list) and all(
            type(value) in (int, float) or (type(value) is str and WORD.fullmatch(value)) for value in values
        )
        if key not in choosable:
            out.append(f"{key}: no setting that an arm can choose{nearest(key, choosable)}")
        elif not plain or len(values) < 2:
            out.append(f"{key}: give at least two numbers or words in a list; got {values!r}")
    if not lists:
        out.append("has nothing to choose from; name a setting and its values under [tune.values] or [tune.arm.NAME]")
    elif not out and len({len(values) for values in lists.values()}) > 1:
        listed = ", ".join(f"{key} {len(values)}" for key, values in lists.items())
        out.append(f"its lists are read side by side and must be equally long; {listed}")
    if arm.settings.objective.clip == "calibrated":
        out.append(PILOTED)
    return out


def _odd_candidates(candidates: Mapping[str, list[dict[str, Any]]], arms: Mapping[str, Arm]) -> list[str]:
    """The mistakes of single candidates, and candidates of unequal cost.

    All must train on as many responses, and those of one arm must pass through the same models. Differences between
    arms, for example a critic, cost as much in the study.
    """
    out: list[str] = []
    trained: dict[str, tuple[int, int]] = {}
    unequal: list[str] = []
    broken: dict[str, list[str]] = {}
    for name, choices in candidates.items():
        labels = [label(values) for values in choices]
        if len(set(labels)) < len(labels):
            out.append(f"tune: arm {name}: two candidates are the same in six digits; got {', '.join(labels)}")
        costs: list[dict[str, Any]] = []
        for values, choice in zip(choices, labels, strict=True):
            try:
                settings = with_values(arms[name].settings, values)
            except ValidationError as error:
                mistake = error.errors()[0]
                key = ".".join(map(str, mistake["loc"]))
                out.append(f"tune: arm {name}: {key} = {mistake['input']!r}: {mistake['msg']}")
                continue
            for line in [PILOTED] if settings.objective.clip == "calibrated" else broken_within(settings):
                broken.setdefault(line, []).append(f"arm {name} with {choice}")
            trained[f"{name} with {choice}"] = _trained(settings)
            whole = cost(settings.model_dump(mode="json"))
            costs.append({name: value for name, value in whole.items() if KEYS[name].dear})
            if keys := differing(costs[0], costs[-1]):
                unequal.append(f"a step of {name} with {labels[0]} and one with {choice} differ in {', '.join(keys)}")
    count = sum(map(len, candidates.values()))
    for line, where in broken.items():
        out.append(f"tune: {'every candidate' if len(where) == count else ', '.join(where)}: {line}")
    uneven = [
        f"a step of {first} trains on {trained[first][0]:,} responses {trained[first][1]} times, of {second} on "
        f"{trained[second][0]:,} {trained[second][1]} times"
        for first, second in pairwise(trained)
        if trained[first] != trained[second]
    ]
    unequal = [*uneven, *unequal]
    if unequal and not out:
        out.append(f"tune: {unequal[0]}; trials must cost the same, so arms cannot choose these")
    return out


def _trained(settings: Settings) -> tuple[int, int]:
    return settings.rollout.prompts_per_step * settings.rollout.group_size, settings.update.epochs


def label(values: Mapping[str, Any]) -> str:
    """A candidate's values, as they name its trials."""
    return "_".join(value if isinstance(value, str) else f"{value:g}" for value in values.values())


def trial(arm: str, values: Mapping[str, Any]) -> str:
    """The name of a candidate among the arms of the trials."""
    return f"{arm}@{label(values)}"


def trials_name(study: str) -> str:
    """The name of the study of trials."""
    return f"{study}-trials"


def trial_study(study: Study) -> Study:
    """The trials of a study that tunes, as a study: every candidate of every arm on the trials' seeds.

    They are as long as the last round, and evaluate only the metric's benchmark, at the end of every round.
    """
    tune = study.tune
    if tune is None:
        raise ValueError(f"{study.name} has no [tune]")
    steps = tune.rounds[-1].steps
    arms = {}
    for arm in study.arms.values():
        for values in tune.candidates[arm.name]:
            candidate = arm.stating(values)
            ends = {"every": tune.steps, "decisive_samples": None, "decisive_evaluations": None}
            benches = [b.model_copy(update=ends) for b in candidate.settings.bench if b.name == tune.metric]
            settings = candidate.settings.model_copy(update={"steps": steps, "bench": benches})
            name = trial(arm.name, values)
            arms[name] = replace(candidate, name=name, settings=settings, of=arm.name)
    keys = dict.fromkeys(key for arm in study.arms for key in tune.keys(arm))
    return replace(
        study,
        name=trials_name(study.name),
        question=f"Which {', '.join(keys)} does each arm of {study.name} train best with?",
        arms=arms,
        seeds=tuple(tune.seeds),
        added=(),
        verdict=VerdictTable(primary=None if tune.metric == REWARD else tune.metric, last=1),
        claims=(),
        tune=tune.model_copy(update={"chosen": {}, "journals": {}}),
        trials_of=study.name,
        waived={},
        reference_bands=reference_bands([arm.settings for arm in arms.values()]),
        mirror=(),
    )


def trained_arms(study: Study) -> list[Arm]:
    """All arms that will train: the study's, and the trials' candidates while none is chosen."""
    undecided = study.tune is not None and not study.tune.chosen and study.trials_of is None
    return [*study.arms.values(), *(trial_study(study).arms.values() if undecided else ())]


def tuned(study: Study, tune: Tune) -> Study:
    """The study with the settings that its arms chose in `tune`."""
    arms = {name: arm.stating(tune.values(name)) for name, arm in study.arms.items()}
    bands = reference_bands([arm.settings for arm in arms.values()])
    return replace(study, arms=arms, tune=tune, reference_bands=bands)
