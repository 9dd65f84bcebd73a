"""A project's grader, opened with what it needs: addresses of services, and a sandbox for Python."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from learnloop.config import Config, GuardsConfig, public_url
from learnloop.errors import ConfigError
from learnloop.grader import Grader
from learnloop.graders import (
    LIMITS,
    grader_of,
    needs_python,
    rewritten_urls,
    spec_of,
    without_secrets,
)
from learnloop.guards import CATALOGUE, GuardedGrader
from learnloop.outbound import Outbound
from learnloop.sandboxes import find_sandbox, open_runner
from learnloop.services import service_url


@asynccontextmanager
async def open_grader(
    config: Config, root: Path, addresses: Mapping[str, str], outbound: Outbound
) -> AsyncGenerator[Grader]:
    """Yield the project's grader; `addresses` are those of its services.

    Raises:
        ConfigError: wrong settings, or nothing on this machine can hold a grader's Python.
    """
    spec = rewritten_urls(spec_of(config.grader, root), lambda url: service_url(url, addresses))
    if not needs_python(spec):
        yield guarded(grader_of(config.grader, outbound, root=root, spec=spec), config.guards)
        return
    ladder = await find_sandbox()
    sandbox = ladder.use(allow_unsandboxed=config.sandbox.allow_unsandboxed)
    async with open_runner(sandbox, LIMITS) as runner:
        grader = grader_of(config.grader, outbound, root=root, runner=runner, spec=spec)
        yield guarded(grader, config.guards)


def guarded(grader: Grader, config: GuardsConfig) -> Grader:
    """Return a grader with the project's guards around it.

    Raises:
        ConfigError: a setting names a guard that does not exist.
    """
    for key, names in (("off", config.off), ("flag_only", config.flag_only)):
        if unknown := sorted(set(names) - CATALOGUE.keys()):
            raise ConfigError(
                f"names no guard: `{unknown[0]}`",
                where=f"guards.{key}",
                fix=f"Guards: {', '.join(sorted(CATALOGUE))}.",
            )
    chosen = [guard for name, guard in CATALOGUE.items() if name not in config.off]
    return GuardedGrader(grader, chosen, flag_only=config.flag_only, hack_reward=config.hack_reward)


def grader_version(config: Config, root: Path) -> str:
    """Return the version of the grader that judges correctness; cost shaping does not count.

    It is told without services and secrets: their ports and values change, the grader does not.
    """
    addresses = {service.name: f"http://{service.name}" for service in config.services}
    spec = rewritten_urls(
        without_secrets(spec_of(config.grader, root)),
        lambda url: service_url(public_url(url), addresses),
    )
    plain = replace(config.grader, cost_weight=0.0)
    bare = grader_of(plain, Outbound(allow_private=True), root=root, spec=spec)
    return guarded(bare, config.guards).version
