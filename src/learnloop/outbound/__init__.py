"""Outgoing HTTP: one client for a whole project, with retries, limits and redaction."""

from learnloop.outbound.address import check_url
from learnloop.outbound.breaker import BreakerRules, Outage
from learnloop.outbound.client import Outbound
from learnloop.outbound.retry import Retry
from learnloop.outbound.route import MAX_BYTES, Endpoint, Posted, Reply, Route, TooLarge
from learnloop.outbound.secret import (
    check_credentials,
    expand_headers,
    expand_secret,
    redactor,
)

__all__ = [
    "MAX_BYTES",
    "BreakerRules",
    "Endpoint",
    "Outage",
    "Outbound",
    "Posted",
    "Reply",
    "Retry",
    "Route",
    "TooLarge",
    "check_credentials",
    "check_url",
    "expand_headers",
    "expand_secret",
    "redactor",
]
