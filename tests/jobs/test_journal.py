"""Whatever many owners do to a job in whatever order: it goes one way and ends once."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from job_helpers import submit

from jobs import paths
from jobs.ids import new_job_id
from jobs.journal import MAX_LOSSES, AlreadyEnded, Journal, NotEnded, Superseded, UnknownJob, records
from jobs.record import Artifact, Entry, JobRecord, Step, Submission
from jobs.states import Reason, ReasonCode, State
from jobs.store import ObjectStore

RESULT = Artifact(name="result.json", bytes=2, media_type="application/json")
BROKEN = Reason(code=ReasonCode.NUMERICAL_FAILURE, message="it broke down")
ENDS = (Step.SUCCEEDED, Step.FAILED, Step.CANCELLED)


def test_a_job_goes_through_its_states(journal: Journal) -> None:
    record = submit(journal, name="first")
    assert (record.state, record.attempt, record.started_at) == (State.QUEUED, 0, None)
    started = journal.start(record.id, "worker-1")
    assert started is not None
    assert (started.state, started.attempt, started.owner) == (State.RUNNING, 1, "worker-1")
    ended = journal.succeed(record.id, 1, [RESULT])
    assert (ended.state, ended.artifacts, ended.owner) == (State.SUCCEEDED, (RESULT,), None)
    assert ended.finished_at is not None
    assert Journal(journal.store).read(record.id) == ended
    assert journal.spec(record.id) == b"{}"


def test_submitting_again_changes_nothing(journal: Journal) -> None:
    record = submit(journal, name="first")
    journal.start(record.id, "worker")
    again = journal.submit(record.id, Submission(kind="other", spec_bytes=0), b"{}")
    assert again.submission == record.submission
    assert again.state is State.RUNNING


def test_unknown_jobs_are_unknown(journal: Journal) -> None:
    for ask in (journal.read, journal.spec, journal.request_cancel, journal.delete):
        with pytest.raises(UnknownJob):
            ask(new_job_id())
    with pytest.raises(UnknownJob):
        journal.start(new_job_id(), "worker")
    journal.settle(new_job_id())


def test_one_delivery_of_many_starts_an_attempt(journal: Journal) -> None:
    record = submit(journal)
    assert journal.start(record.id, "a") is not None
    assert journal.start(record.id, "b") is None
    journal.succeed(record.id, 1, [])
    assert journal.start(record.id, "c") is None


def test_an_attempt_that_was_given_up_adds_nothing(journal: Journal) -> None:
    job_id = submit(journal).id
    journal.start(job_id, "a")
    journal.lose(job_id, 1)
    for late in (
        lambda: journal.succeed(job_id, 1, [RESULT]),
        lambda: journal.fail(job_id, 1, BROKEN),
        lambda: journal.release(job_id, 1),
        lambda: journal.lose(job_id, 1),
    ):
        with pytest.raises(Superseded):
            late()
    journal.start(job_id, "b")
    with pytest.raises(Superseded):
        journal.succeed(job_id, 1, [RESULT])
    assert journal.succeed(job_id, 2, []).attempt == 2


def test_a_poisonous_job_fails(journal: Journal) -> None:
    job_id = submit(journal).id
    for attempt in range(1, MAX_LOSSES + 1):
        started = journal.start(job_id, "worker")
        assert started is not None
        record = journal.lose(job_id, attempt)
    assert record.state is State.FAILED
    assert record.reason is not None
    assert record.reason.code is ReasonCode.WORKER_LOST


def test_giving_a_job_back_does_not_count_against_it(journal: Journal) -> None:
    job_id = submit(journal).id
    for attempt in range(1, 3 * MAX_LOSSES):
        journal.start(job_id, "worker")
        assert journal.release(job_id, attempt).state is State.QUEUED
    assert journal.read(job_id).losses == 0


def test_cancelling_what_waits_ends_it(journal: Journal) -> None:
    job_id = submit(journal).id
    record = journal.request_cancel(job_id)
    assert record.state is State.CANCELLED
    assert record.reason is not None
    assert record.reason.code is ReasonCode.USER
    assert journal.request_cancel(job_id) == record


@pytest.mark.parametrize("how", ["succeed", "fail", "release", "lose"])
def test_a_cancelled_attempt_ends_cancelled_however_it_ends(journal: Journal, how: str) -> None:
    job_id = submit(journal).id
    journal.start(job_id, "worker")
    assert journal.request_cancel(job_id).state is State.CANCELLING
    assert journal.request_cancel(job_id).state is State.CANCELLING
    ends = {
        "succeed": lambda: journal.succeed(job_id, 1, [RESULT]),
        "fail": lambda: journal.fail(job_id, 1, BROKEN),
        "release": lambda: journal.release(job_id, 1),
        "lose": lambda: journal.lose(job_id, 1),
    }
    assert ends[how]().state is State.CANCELLED


def test_what_has_ended_otherwise_cannot_be_cancelled(journal: Journal) -> None:
    job_id = submit(journal).id
    journal.start(job_id, "worker")
    journal.succeed(job_id, 1, [])
    with pytest.raises(AlreadyEnded) as caught:
        journal.request_cancel(job_id)
    assert caught.value.record.state is State.SUCCEEDED


def test_only_ended_jobs_are_deleted(journal: Journal) -> None:
    key = paths.idempotency("key")
    journal.store.put(key, b"{}")
    job_id = submit(journal, idempotency=key).id
    with pytest.raises(NotEnded):
        journal.delete(job_id)
    journal.request_cancel(job_id)
    other = Journal(journal.store)
    assert other.read(job_id).state is State.CANCELLED
    journal.delete(job_id)
    for reader in (journal, other):
        with pytest.raises(UnknownJob):
            reader.read(job_id)
    assert journal.store.names(paths.JOBS) == []
    assert journal.active_ids() == []
    assert journal.store.size(key) is None


def test_a_deletion_that_is_cut_off_leaves_a_mark(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = submit(journal).id
    journal.request_cancel(job_id)
    journal.settle(job_id)

    def killed(prefix: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(journal.store, "delete_folder", killed)
    with pytest.raises(KeyboardInterrupt):
        journal.delete(job_id)
    with pytest.raises(UnknownJob):
        journal.read(job_id)
    assert journal.active_ids() == [job_id]


def test_jobs_are_listed_by_age(journal: Journal) -> None:
    ids = sorted(submit(journal).id for _ in range(5))
    assert journal.ids() == ids[::-1]
    assert journal.active_ids() == ids
    journal.request_cancel(ids[2])
    journal.settle(ids[2])
    assert journal.active_ids() == [*ids[:2], *ids[3:]]
    assert [record.id for record in records(journal, [ids[0], new_job_id(), ids[2]])] == [ids[0], ids[2]]


def test_times_are_those_of_the_entries(store: ObjectStore) -> None:
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number) for number in range(5)]
    clock = iter(moments)
    journal = Journal(store, now=lambda: next(clock))
    job_id = submit(journal).id
    journal.start(job_id, "a")
    journal.lose(job_id, 1)
    journal.start(job_id, "b")
    record = journal.succeed(job_id, 2, [])
    assert (record.created_at, record.started_at, record.finished_at) == (moments[0], moments[1], moments[4])


def test_a_write_whose_answer_was_lost_counts(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    create = journal.store.create

    def forgetful(path: str, data: bytes) -> bool:
        assert create(path, data)
        return create(path, data)  # as a client does that tries again because it got no answer

    monkeypatch.setattr(journal.store, "create", forgetful)
    job_id = submit(journal).id
    started = journal.start(job_id, "worker")
    assert started is not None
    assert started.owner == "worker"
    assert journal.succeed(job_id, 1, []).state is State.SUCCEEDED
    assert len(journal.read(job_id).entries) == 3


def test_many_threads_end_a_job_once(store: ObjectStore) -> None:
    journals = [Journal(store) for _ in range(3)]
    ids = [submit(journals[0]).id for _ in range(4)]
    starts: Counter[tuple[str, int]] = Counter()
    ends: Counter[str] = Counter()
    lock = threading.Lock()

    def work(number: int) -> None:
        journal = journals[number % len(journals)]
        for job_id in ids * 5:
            record = journal.start(job_id, f"worker-{number}")
            if record is None:
                continue
            with lock:
                starts[job_id, record.attempt] += 1
            try:
                if number % 3 == 0:
                    ended = journal.release(job_id, record.attempt)
                elif number % 3 == 1:
                    ended = journal.lose(job_id, record.attempt)
                else:
                    ended = journal.succeed(job_id, record.attempt, [RESULT])
            except Superseded:
                pytest.fail("nobody else gives this attempt up")
            if ended.state.terminal:
                with lock:
                    ends[job_id] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(starts.values()) == {1}
    for job_id in ids:
        record = Journal(store).read(job_id)
        check_log(record)
        assert ends[job_id] == int(record.state.terminal)
        assert sorted(n for name, n in starts if name == job_id) == list(range(1, record.attempt + 1))


def check_log(record: JobRecord) -> None:
    """What holds for every log."""
    steps = [entry.step for entry in record.entries]
    assert steps[0] is Step.SUBMITTED
    ends = [step for step in steps if step in ENDS]
    assert len(ends) == int(record.state.terminal)
    assert not ends or steps[-1] is ends[0]
    starts = [entry.attempt for entry in record.entries if entry.step is Step.STARTED]
    assert starts == list(range(1, record.attempt + 1))
    assert steps.count(Step.LOST) < MAX_LOSSES
    holder: int | None = None
    for entry in record.entries:
        if entry.step is Step.STARTED:
            assert holder is None
            holder = entry.attempt
        elif entry.step in (Step.RELEASED, Step.LOST):
            assert entry.attempt == holder
            holder = None
        elif entry.step in (Step.SUCCEEDED, Step.FAILED):
            assert entry.attempt == holder


class JobMachine(RuleBasedStateMachine):
    """Owners in two processes, each with an attempt it believes in, against one job."""

    def __init__(self) -> None:
        super().__init__()
        store = ObjectStore("memory:///")
        self.journals = [Journal(store), Journal(store)]
        self.job_id = submit(self.journals[0]).id
        self.attempts: list[int] = []
        self.before: tuple[Entry, ...] = ()
        self.ended: JobRecord | None = None

    pick = st.integers(0, 1)
    chosen = st.integers(0, 10)

    @rule(which=pick)
    def start(self, which: int) -> None:
        state = self.state()
        record = self.journals[which].start(self.job_id, f"owner-{which}")
        assert (record is not None) == (state is State.QUEUED)
        if record is not None:
            self.attempts.append(record.attempt)

    @precondition(lambda self: self.attempts)
    @rule(which=pick, chosen=chosen, what=st.sampled_from(["succeed", "fail", "release", "lose"]))
    def end(self, which: int, chosen: int, what: str) -> None:
        attempt = self.attempts[-1 - chosen % len(self.attempts)]
        journal = self.journals[which]
        before = self.fresh()
        act = {
            "succeed": lambda: journal.succeed(self.job_id, attempt, [RESULT]),
            "fail": lambda: journal.fail(self.job_id, attempt, BROKEN),
            "release": lambda: journal.release(self.job_id, attempt),
            "lose": lambda: journal.lose(self.job_id, attempt),
        }[what]
        if not before.holds(attempt):
            with pytest.raises(Superseded):
                act()
            assert self.fresh().entries == before.entries
            return
        state = act().state
        if before.state is State.CANCELLING:
            assert state is State.CANCELLED
        elif what == "lose":
            assert state is (State.FAILED if before.losses + 1 == MAX_LOSSES else State.QUEUED)
        else:
            expected = {"succeed": State.SUCCEEDED, "fail": State.FAILED, "release": State.QUEUED}
            assert state is expected[what]

    @rule(which=pick)
    def cancel(self, which: int) -> None:
        state = self.state()
        if state in (State.SUCCEEDED, State.FAILED):
            with pytest.raises(AlreadyEnded):
                self.journals[which].request_cancel(self.job_id)
            return
        found = self.journals[which].request_cancel(self.job_id).state
        waits = state in (State.QUEUED, State.CANCELLED)
        assert found is (State.CANCELLED if waits else State.CANCELLING)

    @rule(which=pick)
    def read(self, which: int) -> None:
        assert self.journals[which].read(self.job_id) == self.fresh()

    @rule(which=pick)
    def restart(self, which: int) -> None:
        self.journals[which].forget(self.job_id)

    @invariant()
    def holds(self) -> None:
        record = self.fresh()
        check_log(record)
        assert record.entries[: len(self.before)] == self.before
        self.before = record.entries
        assert self.ended in (None, record)
        if record.state.terminal:
            self.ended = record

    def fresh(self) -> JobRecord:
        return Journal(self.journals[0].store).read(self.job_id)

    def state(self) -> State:
        return self.fresh().state


TestJobMachine = JobMachine.TestCase
TestJobMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
