"""The events of a job from all places where they are: its log, the store, and Redis while they are fresh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.events import ENDED, GIVEN_UP, Event, state_events, stored_events
from jobs.record import SEQUENCES, JobRecord
from service.job_desk import JobDesk

FROM_LOG = (0, GIVEN_UP, ENDED)
"""Numbers, within an attempt, of events that the log tells; the others are the worker's, without gaps."""


@dataclass(frozen=True)
class News:
    """Events after some number, in order.

    Attributes:
        complete: False if one that is still to come belongs between those given and later ones that are
            known already: a worker shows events before it stores them, and Redis may have missed some.
        ended: the last event is the end of the job.
    """

    record: JobRecord
    events: list[Event]
    complete: bool

    @property
    def ended(self) -> bool:
        return self.record.state.terminal


def news(desk: JobDesk, job_id: str, after: int, *, patient: bool = True) -> News:
    """What happened after event number ``after``; -1 for everything.

    Args:
        patient: leave out what comes after a missing event.

    Raises:
        UnknownJob, StoreUnavailable
    """
    fresh = desk.fresh_events(job_id, after)
    record = desk.read(job_id)  # later than its fresh events: it knows their attempts
    states = [event for event in state_events(record) if event.sequence > after]
    known = [*(fresh or []), *states]
    events, complete = _in_order(known, after, record)
    over = any(event.sequence % SEQUENCES in (GIVEN_UP, ENDED) for event in states)
    if fresh is None or not complete or after < 0 or over:
        known += stored_events(desk.store, record, after)
        events, complete = _in_order(known, after, record)
    if not complete and not patient:
        events = _sorted(known, after)
    return News(record, events, complete)


def _sorted(events: Iterable[Event], after: int) -> list[Event]:
    by_number = {event.sequence: event for event in events if event.sequence > after}
    return [by_number[number] for number in sorted(by_number)]


def _in_order(events: Iterable[Event], after: int, record: JobRecord) -> tuple[list[Event], bool]:
    """Events up to the first gap, and whether there is none. What an ended attempt left out never comes."""
    result: list[Event] = []
    previous = after
    for event in _sorted(events, after):
        attempt, number = divmod(event.sequence, SEQUENCES)
        if event.sequence != previous + 1 and number not in FROM_LOG and record.holds(attempt):
            return result, False
        result.append(event)
        previous = event.sequence
    return result, True
