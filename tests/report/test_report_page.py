import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import gspo_lab
from first_screens import NO_BENCH, ONE_ARM, one_failed
from laboratory import declare, json_of, rendered, study_json, write_lines
from synthetic_lab import HOSTILE, TWO_ARMS, each, make_lab, right

from gspo_lab.analysis.matching import accept_mismatch
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject, OptionalText, Strings
from gspo_lab.recording.journal import scan
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.report import Report, write
from gspo_lab.report.templating import plain
from gspo_lab.study import Run, load_study


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, OptionalText]]] = []
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self._inside: tuple[str, dict[str, OptionalText]] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, OptionalText]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = (tag, dict(attrs)) if tag in self.inline else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is not None and self._inside[1].get("type") is None:
            self.inline[self._inside[0]].append(data)


SAMPLE = Path(__file__).parents[2] / "reports" / "sample"


def figures(report: Report, section: str, study: str = "toy") -> dict[str, JsonObject]:
    return json.loads(report.json)["studies"][study][section]["figures"]


def test_identical_data_gives_identical_bytes(finished: Path, report: Report) -> None:
    assert rendered(finished, "moe") == report


def test_nothing_is_loaded_from_anywhere(report: Report) -> None:
    page = Elements(report.html)
    loading = {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "audio",
        "video",
        "source",
        "base",
        "use",
        "image",
    }
    assert not [tag for tag, _ in page.found if tag in loading]
    assert not [
        attrs
        for _, attrs in page.found
        if attrs.keys() & {"src", "srcset", "data", "action", "xlink:href"}
    ]
    assert all((attrs.get("href") or "#").startswith("#") for _, attrs in page.found)
    assert "url(" not in report.html
    assert "@import" not in report.html
    assert "data-watch=" not in report.html
    assert 'http-equiv="refresh"' not in report.html, "a finished study's page stands still"


def test_the_policy_allows_this_page_and_nothing_else(report: Report) -> None:
    page = Elements(report.html)
    policy = next(
        attrs["content"]
        for tag, attrs in page.found
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    for kind, inline in page.inline.items():
        assert len(inline) == 1
        digest = base64.b64encode(hashlib.sha256(inline[0].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules[f"{kind}-src"]
    assert not [
        attrs
        for _, attrs in page.found
        if "style" in attrs or any(key.startswith("on") for key in attrs)
    ]


def test_ids_are_unique_and_every_link_has_its_target(report: Report) -> None:
    ids = [attrs["id"] for _, attrs in Elements(report.html).found if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"] for _, attrs in Elements(report.html).found if "href" in attrs}
    assert targets == {f"#{one}" for one in ids} & targets
    assert {
        "#m-reward",
        "#m-clip",
        "#m-clip-minibatch",
        "#m-grad-norm",
        "#m-expert-layer",
        "#answer",
    } <= targets


exact_scores = right(
    lambda run, step: (8 + (4 + run.seed if run.arm == "gspo" and step else 0)) / 20
)
"""Of 20 problems the first 8 are right; GSPO's runs have 4, 5 and 6 more at the end, seed by seed.
"""


def test_the_verdict_is_that_of_the_scores(tmp_path: Path) -> None:
    # d = .20, .25, .30: mean .25, sd .05, t(2) = 4.3027, half-width 4.3027 * .05 / sqrt(3) = .1242
    found = rendered(make_lab(tmp_path, change=exact_scores, steps=20), "toy")
    bench = study_json(found)["scores"]["benches"]["addition"]
    assert [seed["final"] for seed in bench["gspo"]["seeds"].values()] == [0.6, 0.65, 0.7]
    assert_fields(bench["gspo"], start=0.4, final=0.65, gain=0.25)
    assert (
        "| gspo | 0.650 | 0.600, 0.650, 0.700 | 0.400 | +0.250 | 0 of 3 | 3 of 3 | 0 |"
        in found.markdown
    )
    verdict = study_json(found)["answer"]["comparisons"]["gspo"]
    assert_fields(verdict, word="better by more than the margin", better="gspo")
    paired = verdict["paired"]
    assert paired["differences"] == [0.2, 0.25, 0.3]
    assert verdict["estimate"] == 0.25
    assert [paired["low"], paired["high"]] == pytest.approx([0.12579, 0.37421], abs=1e-5)
    told = "gspo is better than grpo by more than the margin on this one starting model"
    assert f"{told}: +0.25 (95 % interval +0.13 to +0.37), 3 seeds." in found.html.replace(
        "\u00a0", " "
    )
    assert f"**{told}.** gspo − grpo: +0.25 (95 % interval +0.13 to +0.37), " in found.markdown


def exact_clips(run: Run, record: UpdateRecord) -> dict[str, float]:
    share = 0.0 if record.minibatch == 0 else 0.4 if run.arm == "gspo" else 0.001
    return {"clip_fraction_tokens": share, "clip_fraction_active_tokens": share * 1.25}


def test_clip_fractions_by_minibatch_and_saturation(tmp_path: Path) -> None:
    found = rendered(make_lab(tmp_path, change=each(UpdateRecord, exact_clips), seeds=1), "toy")
    assert figures(found, "clipping")["m-clip-minibatch"]["rows"] == [
        *(["0", arm, 0] for arm in ("grpo", "gspo")),
        *([str(index), *row] for index in (1, 2, 3) for row in (["grpo", 0.001], ["gspo", 0.4])),
    ]
    headings = " ".join(re.findall(r'<figure id="m-[^"]+"[^>]*><h3><a [^>]*>([^<]*)', found.html))
    shares = "gspo clips 40\u00a0% of the tokens, grpo 0.10\u00a0%"
    assert f"{shares}: 400 times as many (mini-batches ≥ 1; its ceiling is reached)" in headings
    assert "gspo − grpo, mean training reward: " in headings
    assert "final score" not in headings, "one pair has no verdict"
    assert "gspo is saturated: on mini-batches ≥ 1 it clips 50.0\u00a0% of the tokens" in found.html
    assert "grpo is saturated" not in found.html
    assert "Mini-batch 0 is exactly 0 by construction" in found.html


def test_experts_by_layer_and_the_cost_of_replay(report: Report) -> None:
    layers = figures(report, "experts", "moe")["m-expert-layer"]
    assert layers["columns"] == [
        "mixture-of-experts layer, first to last",
        "of",
        "mean",
        "seed 0",
        "seed 1",
        "seed 2",
    ]
    assert [row[0] for row in layers["rows"]][::4] == ["0", "1", "2", "3"]
    assert [row[1] for row in layers["rows"]][:4] == ["grpo", "grpo-replay", "gspo", "gspo-replay"]
    cost = study_json(report, "moe")["experts"]["replay_cost"]
    assert_fields(cost["gspo-replay"], bytes=160000, share=pytest.approx(0.031 / 1.1, rel=1e-5))
    assert cost["gspo"]["replay"] == "none"


FORGE = (
    "tell @name of owner/repo#12, !7, https://x.example/a.png, www.x.example,"
    " ![a](https://x.example/a.png) <details>"
)


def test_hostile_text_is_inert(tmp_path: Path, report: Report) -> None:
    database = make_lab(tmp_path, seeds=1)
    home = tmp_path / "runs" / "toy"
    content = json_of(home / "study.json")
    content |= {
        "question": HOSTILE,
        "comment": HOSTILE,
        "commands": [[HOSTILE]],
        "edits": [{"at": "now", "what": HOSTILE}],
    }
    (home / "study.json").write_text(json.dumps(content))
    journal = home / "grpo" / "s0" / "journal.jsonl"
    lines = scan(journal).items
    lines[0]["facts"] = {HOSTILE: HOSTILE}
    write_lines(journal, map(json.dumps, lines))
    ingest(tmp_path / "runs")
    found = rendered(database, "toy")
    assert "alert(1)" in found.html
    page = Elements(found.html)
    assert "img" not in {tag for tag, _ in page.found}
    kinds = [attrs.get("type") for tag, attrs in page.found if tag == "script"]
    assert kinds.count(None) == 1
    assert kinds.count("text/plain") == 1
    assert set(kinds) == {None, "text/plain", "application/json"}
    assert not [attrs for _, attrs in page.found if any(key.startswith("on") for key in attrs)]
    assert "\x00" not in found.html
    assert "\u202e" not in found.html
    assert "<script" not in found.markdown
    assert "<img" not in found.markdown


def test_a_forge_finds_nothing_of_a_study_s_words_in_the_digest(tmp_path: Path) -> None:
    database = make_lab(tmp_path, TWO_ARMS.replace("Does the", FORGE + " does the"))
    digest = rendered(database, "toy").markdown
    assert "tell" in digest.partition("<details>")[0]
    digest = re.sub(r"(`+)[^`]+\1", "", digest)  # what is code links nowhere
    assert [one for one in ("repo#12", "@name", "!7", "://", "![", "www.x") if one in digest] == []
    assert re.findall(r"(?<!\\)\]\(([^)]+)", digest) == [
        "toy.html",
        "toy.json",
    ], "its own links alone"
    assert digest.count("<details>") == 1


def test_scores_without_problems_leave_no_nan_on_the_page(tmp_path: Path) -> None:
    """A table of scores alone, as other programs write it: how many problems it had is unknown."""
    table = tmp_path / "scores.csv"
    table.write_text("arm,seed,score\ngrpo,0,0.50\ngspo,0,0.55\n", encoding="utf-8")
    runs = tmp_path / "runs"
    assert gspo_lab("import", "csv", table, "--study", "import", "--runs", runs).code == 0
    report = rendered(runs / "lab.db", "import")
    body = re.sub(r"<(script|style).*?</\1>", "", report.html, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", body) + report.markdown
    assert re.findall(r"\b(nan|NaN|None|inf)\b", text) == []
    assert "held-out problems" not in text


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    found = rendered(make_lab(tmp_path, seeds=1), "toy")
    verdict = study_json(found)["answer"]["comparisons"]["gspo"]
    assert (verdict["word"], verdict["paired"]["low"], verdict["estimate"] is None) == (
        "no verdict",
        None,
        False,
    )
    assert "1 seed: no interval can be given" in found.html
    assert (
        "not measured: 1 pair of runs; an interval needs 3"
        not in found.html.partition('id="grounds"')[0]
    )
    assert "<td>1 of 1</td>" in found.html
    assert 'class="margin"' not in found.html.partition('id="grounds"')[0], (
        "a dot in a margin looks equivalent"
    )


def fall(run: Run, record: StepRecord) -> dict[str, float]:
    return (
        {"reward_mean": 0.5 if record.step < 20 else 0.0}
        if (run.arm, run.seed) == ("grpo", 2)
        else {}
    )


ONE_COLLAPSED = {"steps": 60, "every": 20, "change": each(StepRecord, fall)}


OLD_LOGPROBS = TWO_ARMS.replace("[[bench]]", '[update]\nold_logprobs = "sampler"\n[[bench]]', 1)


@pytest.mark.parametrize(
    ("toml", "how", "said", "unsaid"),
    [
        (ONE_ARM, {}, ('class="plot"',), "final score:"),
        (NO_BENCH, {}, ("the score that would decide is not measured",), ""),
        (TWO_ARMS, {"end": one_failed}, ("gspo seed 1 failed",), ""),
        (TWO_ARMS, {"record": False}, ("0 of 6 runs are finished",), 'class="plot"'),
        (TWO_ARMS, ONE_COLLAPSED, ("still counted: grpo seed 2.",), ""),
        (TWO_ARMS, {"seeds": 1}, ("Mini-batch 0 is exactly 0 by construction",), "m-expert"),
        (OLD_LOGPROBS, {"seeds": 1}, ("so mini-batch 0 may clip",), "by construction"),
    ],
    ids=[
        "one arm",
        "no benchmark",
        "a failed run",
        "not begun",
        "a collapsed run",
        "dense",
        "sampler's log-probs",
    ],
)
def test_the_page_says_what_is_special(
    tmp_path: Path, toml: str, how: JsonObject, said: Strings, unsaid: str
) -> None:
    page = rendered(make_lab(tmp_path, toml, **how), "toy").html
    assert [text for text in said if text not in page] == []
    assert not unsaid or unsaid not in page


def test_a_study_without_any_run_folder(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(TWO_ARMS.format(seeds=3, steps=4, every=2))
    declare(load_study(path), tmp_path / "runs")
    ingest(tmp_path / "runs")
    found = rendered(tmp_path / "runs" / "lab.db", "toy")
    assert "0 of 6 runs are finished (6 not begun)" in found.html


def test_matched_runs_are_certified(finished: Path, report: Report) -> None:
    found = study_json(report, "moe")["certificate"]
    assert (found["ok"], len(found["pairs"]), found["reasons"]) == (True, 18, {})
    assert found["states"]["benchmark items"] == {"equal": 18}
    assert "Matched (27 checks, 18 comparisons of two runs" in report.html
    assert '<details id="certificate" class="folded">' in report.html


def test_an_undeclared_difference_withholds_the_verdict(tmp_path: Path) -> None:
    """Of a run from its declaration, and of the declaration from what it was at first."""
    database = make_lab(tmp_path, change=exact_scores)
    home = tmp_path / "runs" / "toy"

    def mistype(name: str, *keys: str) -> None:
        content = part = json_of(home / name)
        for key in keys:
            part = part[key]
        part["learning_rate"] = 0.5
        (home / name).write_text(json.dumps(content))
        ingest(tmp_path / "runs")

    mistype("gspo/s1/run.json", "settings", "update")
    found = rendered(database, "toy")
    data = study_json(found)
    assert data["answer"]["comparisons"]["gspo"]["word"] == "no verdict"
    assert "undeclared difference in settings: update.learning_rate (seed 1)" in found.html
    assert "Matching: NOT matched" in found.markdown
    assert data["certificate"]["reasons"] == {
        "gspo": [
            "undeclared difference in settings: update.learning_rate (seed 1)",
            "undeclared difference in declaration: gspo: update.learning_rate (seed 1)",
        ]
    }
    with Evidence.open(database) as evidence:
        accept_mismatch(
            evidence, Source(evidence, "toy").declaration, "the rate <b>was</b> mistyped"
        )
    again = rendered(database, "toy")
    assert (
        study_json(again)["answer"]["comparisons"]["gspo"]["word"]
        == "better by more than the margin"
    )
    assert "Mismatch accepted: the rate &lt;b&gt;was&lt;/b&gt; mistyped" in again.html
    mistype("study.json", "arms", "gspo", "settings", "update")
    found = rendered(database, "toy")
    data = study_json(found)
    assert "undeclared difference in lock: study.json" in found.html
    assert data["answer"]["comparisons"]["gspo"]["word"] == "no verdict"
    assert data["settings"]["undeclared"] == ["update.learning_rate"]


def test_three_files_are_written_whole(report: Report, tmp_path: Path) -> None:
    paths = write(report, tmp_path / "reports")
    assert [path.name for path in paths] == ["moe.html", "moe.json", "moe.md"]
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == [
        "moe.html",
        "moe.json",
        "moe.md",
    ]
    assert paths[0].read_text(encoding="utf-8") == report.html
    assert json_of(paths[1])["format"] == 3


def test_json_has_sorted_keys_and_six_digits(report: Report) -> None:
    data = json.loads(report.json)
    assert json.dumps(data, separators=(",\n", ": "), sort_keys=True) + "\n" == report.json
    numbers = re.findall(r"-?\d+\.\d+", report.json.replace("\\u2212", "-"))
    assert len(numbers) > 1000
    assert max(len(one.replace(".", "").replace("-", "").lstrip("0")) for one in numbers) <= 6


def test_a_waived_check_is_told_with_its_reason(tmp_path: Path) -> None:
    """In the limits, in all three files."""
    toml = TWO_ARMS + 'dual_clip = 3.0\n[waive]\ndual-clip-one-arm = "that is <the> question"\n'
    report = rendered(make_lab(tmp_path, toml), "toy")
    assert "The check dual-clip-one-arm says that this comparison says little." in report.html
    assert "that is &lt;the&gt; question" in report.html
    assert "that is <the> question" in study_json(report)["limits"]["limits"][0]
    assert "dual-clip-one-arm" in report.markdown


def test_the_digest_fits_a_pull_request(report: Report) -> None:
    shown, fold, rest = report.markdown.partition("<details><summary>Everything else</summary>\n\n")
    assert fold
    assert len(shown.splitlines()) <= 15
    assert shown.startswith("# moe\n\nOn a mixture of experts")
    assert "[The report](moe.html)" in shown
    for line in report.answers["moe"].lines:
        assert f"- {plain(line)}\n" in shown
    assert "## Answer" in rest
    assert rest.endswith("</details>\n")


@pytest.mark.parametrize("digest", sorted(SAMPLE.glob("*.md")), ids=lambda path: path.stem)
def test_a_sample_has_every_file_that_it_links(digest: Path) -> None:
    linked = re.findall(r"(?<!\\)\]\(([^)]+)", digest.read_text(encoding="utf-8"))
    assert [Path(link).suffix for link in linked] == [".html", ".json"]
    assert all((SAMPLE / link).is_file() for link in linked)
