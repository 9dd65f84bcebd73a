"""Foreign code runs, and harms nothing: on the real sandboxes of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from learnloop.errors import ConfigError, SandboxError
from learnloop.sandbox import Job, Level, Limits, Ran, Sandbox
from learnloop.sandboxes import Ladder, find_sandbox
from learnloop.sandboxes.bubblewrap import Bubblewrap
from learnloop.sandboxes.landlock import Landlocked
from learnloop.sandboxes.pool import PythonPool
from learnloop.sandboxes.seccomp import seccomp_filter
from learnloop.sandboxes.selftest import PROBES, selftest

# A busy machine makes every start of a process slow.
pytestmark = pytest.mark.timeout(300)

LEVELS: tuple[Level, ...] = ("full", "landlock")


def here(level: Level) -> Sandbox:
    """Return the sandbox of a level; a machine without it skips, unless it must be there."""
    program = shutil.which("bwrap")
    if level == "full":
        if program is None and "bubblewrap" not in os.environ.get("LEARNLOOP_REQUIRE", ""):
            pytest.skip("bubblewrap is not installed")
        found = anyio.run(find_sandbox).sandbox
        assert isinstance(found, Bubblewrap)
        return found
    return Landlocked(level=level, python="/usr/bin/python3")


def ran(level: Level, *argv: str, **changes: object) -> Ran:
    return anyio.run(here(level).run, replace(Job(argv=argv), **changes))


def shell(level: Level, script: str, **changes: object) -> Ran:
    return ran(level, "/bin/sh", "-c", script, **changes)


@pytest.mark.parametrize("level", LEVELS)
def test_every_attack_that_a_level_promises_to_hold_is_held(level: Level):
    verdicts = anyio.run(selftest, here(level))
    assert len(verdicts) == len(PROBES) == 17
    broken = [v for v in verdicts if not v.held and (level == "full" or not v.full_only)]
    assert broken == []


def test_the_same_attacks_succeed_where_only_limits_hold():
    """So a probe that says `held` is not one that could not have said anything else."""
    verdicts = {v.name: v.held for v in anyio.run(selftest, here("limits"))}
    assert not any(
        verdicts[name]
        for name in (
            *("tcp out", "udp out", "abstract unix socket", "host folder"),
            *("other processes", "ptrace", "new user namespace"),
        )
    )


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_gets_its_files_and_input_and_leaves_what_is_asked_for(level: Level):
    done = shell(
        level,
        "cat; cat in/a.txt; echo $GREETING; mkdir out; echo made > out/b.txt; "
        "ln -s /etc/passwd link; echo more > unasked; echo late >&2; exit 3",
        files={"in/a.txt": b"given\n"},
        stdin=b"said\n",
        env={"GREETING": "hello"},
        collect=("out/b.txt", "link", "never"),
    )
    assert (done.end, done.exit_code, done.level) == ("exited", 3, level)
    assert not done.is_well
    assert done.stdout == b"said\ngiven\nhello\n"
    assert done.stderr == b"late\n"
    assert done.files == {"out/b.txt": b"made\n"}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "a\nb"])
def test_no_name_leads_out_of_the_box(level: Level, name: str):
    for job in (
        Job(argv=("/bin/true",), files={name: b""}),
        Job(argv=("/bin/true",), collect=(name,)),
    ):
        with pytest.raises(SandboxError, match="no file in the box"):
            anyio.run(here(level).run, job)


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_is_killed_for_time_and_output_and_dies_of_its_own_signals(level: Level):
    slow = shell(level, "echo begun; sleep 60", limits=Limits(wall_s=0.5))
    assert (slow.end, slow.exit_code, slow.stdout) == ("wall", None, b"begun\n")
    assert slow.wall_s < 20
    loud = shell(level, "while :; do echo 0123456789; done", limits=Limits(output_kb=4))
    assert (loud.end, len(loud.stdout)) == ("output", 4096)
    assert shell(level, "kill -9 $$").exit_code == 137
    assert ran(level, "/bin/nothing-of-the-kind").exit_code not in (0, None)


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_cannot_pass_its_failure_off_as_one_of_the_sandbox(level: Level):
    """Else a wrong answer could be had out of the count as a fault of the infrastructure."""
    for words, code in (("bwrap: Creating new namespace failed", 1), ("confine: no", 125)):
        done = shell(level, f"echo '{words}' >&2; exit {code}")
        assert (done.end, done.exit_code) == ("exited", code)
    spoil = "for fd in /proc/self/fd/*; do echo '{}' > $fd; done; exit 1"
    assert shell(level, spoil).exit_code == 1


@pytest.mark.parametrize("level", LEVELS)
def test_jobs_run_beside_each_other_and_leave_nothing(level: Level):
    sandbox = here(level)
    before = set(Path(tempfile.gettempdir()).glob("learnloop-box-*"))
    results: list[Ran] = []

    async def one(number: int) -> None:
        script = f"echo {number} > mine; sleep 0.2; cat mine; ls | wc -l"
        results.append(await sandbox.run(Job(argv=("/bin/sh", "-c", script))))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(one, number)

    anyio.run(main)
    assert sorted(r.stdout.split()[0] for r in results) == sorted(b"%d" % n for n in range(12))
    assert {r.stdout.split()[1] for r in results} == {b"1"}
    assert set(Path(tempfile.gettempdir()).glob("learnloop-box-*")) == before


def test_a_cancelled_job_is_killed():
    sandbox = here("full")

    async def main() -> None:
        with anyio.move_on_after(0.4):
            await sandbox.run(Job(argv=("/bin/sleep", "4711")))

    anyio.run(main)
    time.sleep(0.1)
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not any(b"4711" in line for line in lines)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose another user")
@pytest.mark.parametrize("level", LEVELS)
def test_a_job_of_root_is_not_root_even_to_the_host(level: Level):
    """In a namespace alone uid 0 would read root's files, whatever `id` says."""
    done = shell(level, "id -u; cat /proc/self/uid_map 2>/dev/null")
    assert 60_000 < int(done.stdout.split()[0]) < 65_000


def test_only_known_processors_have_a_filter():
    assert seccomp_filter(sockets=True, machine="riscv64") is None
    for machine in ("x86_64", "aarch64"):
        with_sockets = seccomp_filter(sockets=True, machine=machine)
        without = seccomp_filter(sockets=False, machine=machine)
        assert with_sockets
        assert without
        assert len(without) > len(with_sockets)
        assert len(without) % 8 == 0


def pooled(use: Callable[[PythonPool], Awaitable[list[Ran]]], **limits: float) -> list[Ran]:
    sandbox = here("full")
    assert isinstance(sandbox, Bubblewrap)

    async def main() -> list[Ran]:
        pool = PythonPool(sandbox=sandbox, limits=replace(Limits(), **limits))
        async with pool:
            return await use(pool)

    return anyio.run(main)


def test_waiting_interpreters_take_one_job_each():
    async def use(pool: PythonPool) -> list[Ran]:
        keep = "import sys, builtins, os; print(hasattr(builtins, 'kept'), os.path.exists('f'));"
        keep += "builtins.kept = 1; open('f', 'w').write('x')"
        return [await pool.run(keep) for _ in range(6)]

    assert {r.stdout for r in pooled(use)} == {b"False False\n"}


def test_a_program_in_the_pool_gets_input_and_files_and_ends_as_programs_do():
    async def use(pool: PythonPool) -> list[Ran]:
        return [
            await pool.run(
                "import sys; print(sys.stdin.read(), open('a/b').read())", b"in", **{"a/b": "é"}
            ),
            await pool.run("raise ValueError('no')"),
            await pool.run("import sys; sys.exit(5)"),
            await pool.run("raise SystemExit('why')"),
            await pool.run("def"),
            await pool.run("while True: pass"),
        ]

    good, raised, left, said, bad, slow = pooled(use, wall_s=2.0)
    assert (good.exit_code, good.stdout.decode()) == (0, "in é\n")
    assert raised.exit_code == 1
    assert b"ValueError: no" in raised.stderr
    assert left.exit_code == 5
    assert (said.exit_code, said.stderr) == (1, b"why\n")
    assert b"SyntaxError" in bad.stderr
    assert slow.end == "wall"


def test_the_ladder_never_steps_down_silently(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ladder = anyio.run(find_sandbox)
    assert ladder.sandbox is not None
    assert ladder.sandbox.level == "landlock"
    assert ladder.missing == (("full", "bubblewrap is not installed"),)
    weak = Ladder(sandbox=Landlocked(level="limits"), missing=(("full", "not there"),))
    with pytest.raises(ConfigError, match="allow_unsandboxed"):
        weak.use()
    assert weak.use(allow_unsandboxed=True).level == "limits"
    with pytest.raises(ConfigError, match="cannot be confined"):
        Ladder(sandbox=None, missing=()).use(allow_unsandboxed=True)
