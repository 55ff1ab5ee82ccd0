"""`[tune]` read from a study, and its trials: another study, whose runs give no verdict.

    [tune]
    seeds = [100, 101]
    steps = 10
    [tune.values]
    update.weight_decay = [0.0, 0.01, 0.05, 0.1]

The arm `gspo` of the study `x` has the trials `gspo@0` ... of the study `x-trials`, with the
seeds of `[tune]`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pydantic import ValidationError

from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.common.registry import nearest, unlisted
from gspo_lab.study.declaration import Arm, ArmsByName, reference_bands
from gspo_lab.study.dotted_keys import differing, flat
from gspo_lab.study.parent import Kind
from gspo_lab.study.schema import KEYS, cost
from gspo_lab.study.settings_validation import broken_within
from gspo_lab.study.study import Study
from gspo_lab.study.tune import REWARD, Tune, TuneTable, label, trial, with_values
from gspo_lab.study.verdict_tables import VerdictTable, score_named

WORD = re.compile(r"[\w.+-]+", re.ASCII)
"""Text that may be part of a trial's name, which also names a folder."""
PILOTED = "clip = 'calibrated': a pilot finds its range, and trials have none; give fixed ones"


def read_tune(
    table: TuneTable | None,
    arms: ArmsByName,
    seeds: Sequence[int],
    verdict: VerdictTable,
    problems: list[str],
) -> Tune | None:
    """The tuning of a study's arms, None without `[tune]`; mistakes go to `problems`."""
    if table is None or not arms:
        return None
    count = len(problems)
    if len(set(table.seeds)) < len(table.seeds):
        problems.append(f"tune.seeds: {table.seeds} holds a seed twice; a seed counts once")
    if common := sorted(set(table.seeds) & set(seeds)):
        are_seeds = "is a seed" if len(common) == 1 else "are seeds"
        seeds_text = f"{', '.join(map(str, common))} {are_seeds} of the study"
        problems.append(
            f"tune.seeds: {seeds_text}, which would judge what was chosen by it; give the trials"
            " others"
        )
    benches = [bench.name for bench in next(iter(arms.values())).settings.bench]
    metric = table.metric or verdict.primary or next(iter(benches), REWARD)
    if score_named(metric).bench not in (*benches, REWARD):
        listed = unlisted(metric, [*benches, REWARD], "it may be")
        problems.append(f"tune.metric: no benchmark {listed}")
    if odd := [name for name in table.arm if name not in arms]:
        problems.append(f"tune.arm: no arm {unlisted(odd[0], arms, 'this study has')}")
    lists = {name: flat(table.values) | flat(table.arm.get(name, {})) for name in arms}
    for name, arm in arms.items():
        problems += [f"tune: arm {name}: {line}" for line in _odd_lists(lists[name], arm)]
    if len(problems) > count:
        return None
    candidates = {
        name: [
            dict(zip(of_arm, values, strict=True)) for values in zip(*of_arm.values(), strict=True)
        ]
        for name, of_arm in lists.items()
    }
    if len(set(map(len, candidates.values()))) > 1:
        listed = ", ".join(f"{name} {len(of_arm)}" for name, of_arm in candidates.items())
        problems.append(
            "tune: every arm needs as many candidates as the others, for the same budget; it has"
            f" {listed}"
        )
        return None
    problems += [f"tune: {line}" for line in _odd_candidates(candidates, arms)]
    declared = {
        name: {key: arm.flat_settings[key] for key in lists[name]} for name, arm in arms.items()
    }
    return Tune(
        metric=metric,
        seeds=table.seeds,
        steps=table.steps,
        eta=table.eta,
        candidates=candidates,
        declared=declared,
    )


def _odd_lists(lists: JsonMapping, arm: Arm) -> Iterator[str]:
    """The mistakes in the lists of an arm."""
    choosable = [key for key in arm.flat_settings if key in KEYS and KEYS[key].arms == "choose"]
    if not lists:
        yield (
            "has nothing to choose from; name a setting and its values under [tune.values] or"
            " [tune.arm.NAME]"
        )
    length: int | None = None
    for key, values in lists.items():
        if key not in choosable:
            yield f"{key}: no setting that an arm can choose{nearest(key, choosable)}"
        elif not isinstance(values, list) or len(values) < 2 or not all(map(_is_plain, values)):
            yield f"{key}: give at least two numbers or words in a list; got {values!r}"
        elif len(values) != (length := length or len(values)):
            yield (
                f"lists are read side by side and must be equally long; {key} has {len(values)},"
                f" the first {length}"
            )


def _is_plain(value: Any) -> bool:
    return type(value) in (int, float) or (type(value) is str and WORD.fullmatch(value) is not None)


def _odd_candidates(candidates: Mapping[str, list[JsonObject]], arms: ArmsByName) -> list[str]:
    """The mistakes of single candidates, a broken rule once, and the first candidate of another
    cost.

    All must train on as many responses, and those of one arm must pass through the same models.
    Differences between arms, for example a critic, cost as much in the study.
    """
    out: dict[str, str] = {}
    unequal: list[str] = []
    common: JsonObject = {}
    for name, choices in candidates.items():
        of_arm: JsonObject = {}
        for index, values in enumerate(choices):
            where = f"arm {name} with {label(values)}"
            if label(values) in map(label, choices[:index]):
                out[where] = f"{where}: two candidates are the same in six digits"
            try:
                settings = with_values(arms[name].settings, values)
            except ValidationError as error:
                mistake = error.errors()[0]
                out[where] = (
                    f"{where}: {'.'.join(map(str, mistake['loc']))} = {mistake['input']!r}:"
                    f" {mistake['msg']}"
                )
                continue
            for line in (
                [PILOTED] if settings.objective.clip == "calibrated" else broken_within(settings)
            ):
                out.setdefault(line, f"{where}: {line}")
            responses = settings.rollout.prompts_per_step * settings.rollout.group_size
            trained = {
                "the number of responses": responses,
                "update.epochs": settings.update.epochs,
            }
            prices = cost(settings.model_dump(mode="json"))
            passes = {key: price for key, price in prices.items() if KEYS[key].expensive_values}
            common = common or trained
            of_arm = of_arm or passes
            if keys := differing(common, trained) + differing(of_arm, passes):
                unequal.append(
                    f"{where}: its steps differ in {', '.join(keys)}; trials must cost the same, so"
                    " arms cannot choose these"
                )
    return list(out.values()) or unequal[:1]


def trial_study(study: Study) -> Study:
    """The trials of a study that tunes, as a study: every candidate of every arm on the trials'
    seeds.

    They are as long as the last round, and evaluate only the metric's benchmark, at the end of
    every round.
    """
    tune = study.tune
    assert tune is not None
    arms = []
    for arm in study.arms.values():
        for values in tune.candidates[arm.name]:
            candidate = arm.stating(values)
            benches = [
                bench.replace(every=tune.steps, decisive_samples=None, decisive_evaluations=None)
                for bench in candidate.settings.bench
                if bench.name == tune.metric
            ]
            settings = candidate.settings.replace(steps=tune.rounds[-1].steps, bench=benches)
            name = trial(arm.name, values)
            arms.append(replace(candidate, name=name, settings=settings, of=arm.name))
    keys = dict.fromkeys(chain.from_iterable(map(tune.keys, study.arms)))
    return study.derive(
        Kind.TRIAL,
        arms,
        tune.seeds,
        question=f"Which {', '.join(keys)} does each arm of {study.name} train best with?",
        verdict=VerdictTable(primary=None if tune.metric == REWARD else tune.metric, last=1),
        claims=(),
        tune=tune.undecided,
        waived={},
        mirror=(),
    )


def trained_arms(study: Study) -> list[Arm]:
    """All arms that will train: the study's, and the trials' candidates while none is chosen."""
    undecided = study.tune is not None and not study.tune.chosen and study.has_verdict
    return [*study.arms.values(), *(trial_study(study).arms.values() if undecided else ())]


def tuned(study: Study, tune: Tune) -> Study:
    """The study with the settings that its arms chose in `tune`."""
    arms = {name: arm.stating(tune.values(name)) for name, arm in study.arms.items()}
    bands = reference_bands([arm.settings for arm in arms.values()])
    return replace(study, arms=arms, tune=tune, reference_bands=bands)
