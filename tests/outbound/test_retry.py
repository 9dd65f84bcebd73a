"""Waiting between tries: doubling with jitter, unless the server says when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from learnloop.outbound.retry import Retry, retry_after_s


def test_waits_double_up_to_a_cap_and_are_jittered() -> None:
    retry = Retry(first_delay_s=1.0, max_delay_s=4.0)
    for attempt, most in enumerate((1.0, 2.0, 4.0, 4.0)):
        waits = {retry.delay_s(attempt) for _ in range(50)}
        assert most / 2 <= min(waits) <= max(waits) <= most
        assert len(waits) > 1


def test_a_servers_wish_goes_first_up_to_a_cap() -> None:
    retry = Retry(max_retry_after_s=60)
    assert retry.delay_s(0, "7") == 7
    assert retry.delay_s(0, "86400") == 60
    assert retry.delay_s(0, "soon") <= 0.5


def test_retry_after_may_be_a_date() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert retry_after_s(format_datetime(soon)) == pytest.approx(30, abs=2)
    assert retry_after_s("Thu, 01 Jan 1970 00:00:00 GMT") == 0
    assert retry_after_s("-5") is None
