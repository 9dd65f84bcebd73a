"""The example project `examples/stateful`: every rollout has its own database, and leaves none."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from learnloop.check import check
from learnloop.project import Project

SOURCE = Path(__file__).parents[2] / "examples" / "stateful"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("data", ".learnloop", "__pycache__")
    return Path(shutil.copytree(SOURCE, tmp_path / "stateful", ignore=ignore))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load the example's server under names that disturb nobody."""
    for name in ("tasks", "server"):
        spec = importlib.util.spec_from_file_location(name, SOURCE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return sys.modules["server"]


def a_call(number: int, name: str = "transfer", **arguments: Any) -> dict[str, Any]:
    given = arguments or {"source": "ann", "target": "bob", "amount": 1}
    return {"call_id": f"call_{number}", "name": name, "arguments": json.dumps(given)}


def test_parallel_transfers_of_many_rollouts_neither_mix_nor_get_lost_and_nothing_is_left(
    project: Path,
) -> None:
    config = project / "learnloop.toml"
    text = config.read_text()
    config.write_text(text.replace('"{port}"]', '"{port}", "--latency-ms", "5"]'))
    command = [sys.executable, "play.py", "--tasks", "60", "--at-once", "30"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary == {"outcomes": {"graded": 60}, "correct": 60.0, "copies_left": 0}


def test_the_project_passes_the_check(project: Path) -> None:
    async def main() -> None:
        report = await check(Project.open(project), needs_model=False)
        assert report.ok, [f.line() for f in report.findings if f.level == "error"]
        assert {peak.tool for peak in report.peaks} == {"transfer", "balance"}

    anyio.run(main)


def test_rollouts_do_not_see_each_others_money(server: ModuleType) -> None:
    async def main() -> None:
        bank = server.Bank(latency_s=0.002)
        await asyncio.gather(
            *(bank.call(trace, a_call(n)) for trace in ("one", "two") for n in range(20))
        )
        look = a_call(99, "balance", account="ann")
        assert await bank.call("one", look) == await bank.call("two", look) == (200, "980")
        assert await bank.call("three", look) == (200, "1000")
        for trace in ("one", "two", "three"):
            await bank.end(trace)
        assert bank.episodes == {}
        bank.close()

    asyncio.run(main())


def test_a_call_that_comes_twice_is_done_once_and_one_after_the_end_is_refused(
    server: ModuleType,
) -> None:
    async def main() -> None:
        bank = server.Bank()
        first = await bank.call("one", a_call(1))
        assert await bank.call("one", a_call(1)) == first == (200, "bob now holds 2001")
        await bank.end("one")
        assert await bank.call("one", a_call(2)) == (409, "this episode is over")
        assert bank.episodes == {}
        bank.close()

    asyncio.run(main())
