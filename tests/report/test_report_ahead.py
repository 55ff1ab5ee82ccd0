"""What is read while Python imports and draws: all of it is used, nothing is read twice, the page is the same."""

import sys
import threading
from pathlib import Path

import pytest

from gspo_lab.report import Source, render, render_all
from gspo_lab.report.ahead import reading_ahead
from gspo_lab.store import Evidence
from gspo_lab.store.snapshot import Snapshot, _Read


def read(evidence: Evidence) -> set[object]:
    return {key for key, entry in evidence._snapshot._read.items() if entry.found}


@pytest.fixture(autouse=True)
def several_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gspo_lab.store.snapshot.cores", lambda: 2)


def test_the_sections_ask_for_exactly_what_was_read_ahead(finished: Path) -> None:
    with Evidence.open(finished) as evidence:
        interval = sys.getswitchinterval()
        with reading_ahead([Source(evidence, "moe", "moe")]):
            pass
        assert sys.getswitchinterval() == interval
        ahead = read(evidence)
        assert len(ahead) == 6, "rewards, spans of two tables, prompts, first mini-batches, mini-batches"
        render(evidence, ["moe"])
        later = read(evidence) - ahead
        assert [key[0][0] for key in later] == ["by mini-batch"], "the section on experts has one more, for MoE models"


def test_the_page_is_the_same_without_a_second_processor(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Evidence.open(finished) as evidence:
        with evidence.beside() as other:
            assert other is not None
        ahead = render(evidence, ["moe"]).html
    monkeypatch.setattr("gspo_lab.store.snapshot.cores", lambda: 1)
    with Evidence.open(finished) as evidence:
        with evidence.beside() as other:
            assert other is None
        assert render(evidence, ["moe"]).html == ahead


def test_two_studies_of_one_database_are_read_by_one_other_thread(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what every study is asked for, each is read ahead once, and all by one thread that is not this one."""
    readers: list[tuple[str, int]] = []
    prompt_streams = Evidence.prompt_streams

    def noted(evidence: Evidence, study: str) -> object:
        readers.append((study, threading.get_ident()))
        return prompt_streams(evidence, study)

    with Evidence.open(finished) as evidence:
        monkeypatch.setattr(Evidence, "prompt_streams", noted)
        with reading_ahead([Source(evidence, "moe", "one"), Source(evidence, "moe", "two")]):
            pass
        assert [study for study, _ in readers] == ["moe", "moe"]
        (reader,) = {thread for _, thread in readers}
        assert reader != threading.get_ident()
        found = render_all([Source(evidence, "moe", "one"), Source(evidence, "moe", "two")])
        assert found.html.count("<article") == 2
        with evidence.beside() as other:
            assert other is not None, "what was lent has come back"


def test_an_error_of_a_section_ends_the_reading_too(finished: Path) -> None:
    with Evidence.open(finished) as evidence:
        threads = threading.active_count()
        with pytest.raises(ZeroDivisionError), reading_ahead([Source(evidence, "moe", "moe")]):
            raise ZeroDivisionError
        assert threading.active_count() == threads


def test_who_asks_for_what_is_just_being_read_waits_for_it(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    class Awaited:
        """The lock of what is read: lets the reading go on as soon as somebody has found it taken."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            if not self.lock.acquire(blocking=False):
                go_on.set()
                assert self.lock.acquire(timeout=240)

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    def slowly() -> str:
        begun.set()
        assert go_on.wait(240)
        reads.append("slow")
        return "found"

    monkeypatch.setattr("gspo_lab.store.snapshot._Read", lambda: _Read(lock=Awaited()))  # type: ignore[arg-type]

    snapshot = Snapshot.open(finished)
    with snapshot.beside() as other:
        assert other is not None
        thread = threading.Thread(target=other.once, args=("key", slowly))
        thread.start()
        assert begun.wait(240)
        assert snapshot.once("key", lambda: reads.append("again")) == "found"
        thread.join()
    assert reads == ["slow"]
    snapshot.close()


def test_what_failed_to_be_read_is_read_again(finished: Path) -> None:
    snapshot = Snapshot.open(finished)
    with pytest.raises(ZeroDivisionError):
        snapshot.once("key", lambda: 1 / 0)
    assert snapshot.once("key", lambda: 1) == 1
    snapshot.close()
