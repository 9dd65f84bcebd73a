"""Implementations of the Grader contract, and the choice among them."""

from __future__ import annotations

import os

from learnloop.config import GraderConfig
from learnloop.errors import ConfigError
from learnloop.grader import Grader
from learnloop.graders.cost import CostGrader, CostShape
from learnloop.graders.endpoint import EndpointGrader
from learnloop.graders.numeric import NumericGrader
from learnloop.graders.string_check import StringCheckGrader
from learnloop.outbound import Endpoint, Outbound, expand_headers, expand_secret


def grader_of(config: GraderConfig, outbound: Outbound) -> Grader:
    """Return the configured grader, with cost shaping around it when that has a weight.

    Raises:
        ConfigError: unknown type, missing or forbidden address, or settings out of range.
    """
    inner = _inner(config, outbound)
    if config.cost_weight == 0:
        return inner
    shape = CostShape(
        weight=config.cost_weight,
        unit=config.cost_unit,
        free=config.cost_free,
        full=config.cost_full,
    )
    return CostGrader(inner, shape)


def _inner(config: GraderConfig, outbound: Outbound) -> Grader:
    """Return the grader that judges correctness."""
    if config.type == "numeric":
        return NumericGrader(
            reference=config.reference, abs_tol=config.abs_tol, rel_tol=config.rel_tol
        )
    if config.type == "string_check":
        return StringCheckGrader(reference=config.reference, operation=config.operation)
    if config.type == "endpoint":
        return EndpointGrader(_endpoint(config), outbound, pass_threshold=config.pass_threshold)
    raise ConfigError(
        f"unknown grader type {config.type!r}",
        where="[grader] type",
        fix="Use numeric, string_check or endpoint.",
    )


def _endpoint(config: GraderConfig) -> Endpoint:
    """Return where a grader endpoint is; secrets in headers come from the environment."""
    return Endpoint(
        name="grader",
        url=config.url,
        headers=expand_headers(config.headers, os.environ, where="[grader] headers"),
        timeout_s=config.timeout_s,
        rate_limit=config.rate_limit,
        secret=expand_secret(config.secret, os.environ, where="[grader] secret"),
    )
