"""An optimizer's knowledge of itself: what it runs and abandons."""

from amoro_core.model.processes import Attempt, TaskId
from amoro_optimizer.session import (
    Registration,
    Session,
    abandons,
    finished,
    heartbeat_answered,
    progressed,
    registered,
    staged,
    started,
    token_lost,
)

FIRST = Registration("one", "token-1", 10.0, 60.0)
SECOND = Registration("two", "token-2", 10.0, 60.0)
A, B = Attempt(TaskId("p", 1), 1), Attempt(TaskId("p", 2), 1)


def running_two() -> Session:
    return started(started(registered(Session(), FIRST, []), A, 1), B, 2)


def test_attempts_are_abandoned_that_a_heartbeat_names_or_a_new_registration_did_not_adopt() -> None:
    session = registered(running_two(), SECOND, [A])
    assert session.registration == SECOND
    assert not abandons(session, A)
    assert abandons(session, B)
    session = heartbeat_answered(running_two(), [B])
    assert not abandons(session, A)
    assert abandons(session, B)


def test_a_token_that_was_lost_earlier_does_not_end_a_later_registration() -> None:
    session = running_two()
    old = session.generation
    lost = token_lost(session, old)
    assert lost.registration is None
    again = registered(lost, SECOND, [A, B])
    assert token_lost(again, old) == again
    assert again.generation == old + 1


def test_what_is_told_of_work_is_kept_for_running_attempts_only() -> None:
    session = staged(progressed(running_two(), A, 5, 10), A, "split", 700)
    running = session.running[A]
    assert (running.rows_done, running.rows_total, running.stage, running.core_ms) == (5, 10, "split", 700)
    assert progressed(session, A, 4, 10) == progressed(session, A, 0, 20) == session
    assert progressed(session, A, 12, 20).running[A].rows_done == 12
    ended = finished(session, A)
    assert (abandons(ended, A), set(ended.running)) == (True, {B})
    assert progressed(ended, A, 6, 10) == staged(ended, A, "write", 800) == finished(ended, A) == ended
