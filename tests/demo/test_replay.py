"""The replay counts what the broker acknowledged, each record once."""

from __future__ import annotations

from concurrent.futures import Future

from kohort.demo.replay import Replay


class _DoneOnSecondLook(Future[object]):
    """A future that the broker's answer reaches between two questions."""

    looks = 0

    def done(self) -> bool:
        self.looks += 1
        return self.looks > 1


def test_a_record_acknowledged_while_counting_is_counted_later_not_lost() -> None:
    replay = Replay(None, lambda: None, "flights", 8.0)  # type: ignore[arg-type,return-value]  # nothing is published
    pending: list[Future[object]] = [_DoneOnSecondLook(), _DoneOnSecondLook()]
    for future in pending:
        future.set_result(None)
    replay._settle(pending)  # type: ignore[arg-type]  # what the results are does not matter
    replay._settle(pending)  # type: ignore[arg-type]  # the second look
    assert replay.progress.published == 2
    assert pending == []
