"""The probe asks a grader endpoint twice about one rollout of each task."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.conftest import Small
from tests.e2e.small_project import EXACT, LUCKY, make_small_project
from tests.tiny_project import edit

# A busy machine makes every start of a process slow.
pytestmark = pytest.mark.timeout(400)

# Of the dry rollouts of the check an honest grader is asked.
HONEST = f"{EXACT} if not data['trace_id'].strip('trace_0') else"
FICKLE = (
    f"{HONEST} (SEEN.setdefault(data['trace_id'], []).append(1) or len(SEEN[data['trace_id']]) % 2)"
)
NAMES = 'NAMES = ("search", "cat")\n'


def probed(root: Path, mark: str, grader: str) -> Small:
    small = Small(make_small_project(root, warmup=False))
    edit(small.root, LUCKY, grader, file="server.py")
    edit(small.root, NAMES, f"{NAMES}SEEN = {{}}\n", file="server.py")
    done = small.run("probe", "--tasks", "3", "--attempts", "2", "--json")
    assert done.code == 0, done.err
    assert done.json["regraded"] == 3
    assert sum(done.json["buckets"].values()) == 3
    assert (done.json["advice"]["code"] == "grader_unstable") is (mark == "fickle")
    assert (done.json["buckets"]["grader_unstable"] == 3) is (mark == "fickle")
    return small


def test_a_grader_that_contradicts_itself_is_found(tmp_path: Path):
    small = probed(tmp_path / "small", "fickle", FICKLE)
    [(told,)] = small.rows("select data_json from events where kind = 'probe'")
    assert told.count("trace_") == 3
    assert small.run("ledger", "verify").code == 0


def test_one_that_does_not_is_trusted_and_a_fault_is_no_second_score(tmp_path: Path):
    probed(tmp_path / "small", "steady", f"{HONEST} len(data['trace_id']) % 2")
    small = Small(make_small_project(tmp_path / "broken", warmup=False))
    edit(small.root, NAMES, f"{NAMES}SEEN = {{}}\n", file="server.py")
    broken = (
        f"{FICKLE}\n            if len(SEEN.get(data['trace_id'], [])) > 1:"
        "\n                return self.answer(200, {'score': 'great'})"
    )
    edit(small.root, LUCKY, broken, file="server.py")
    done = small.run("probe", "--tasks", "3", "--attempts", "1", "--json")
    assert done.code == 0, done.err
    assert (done.json["regraded"], done.json["buckets"]["grader_unstable"]) == (0, 0)
