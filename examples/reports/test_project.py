"""Tests of the project itself; run them with `python -m pytest test_project.py`."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import corpus
import server


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    corpus.write_all(folder, demos=12)
    return folder


@pytest.fixture(scope="module")
def db(data: Path) -> Iterator[sqlite3.Connection]:
    connection = server.open_index(data / "reports.sqlite")
    yield connection
    connection.close()


def test_the_same_seed_makes_the_same_world_and_another_seed_another() -> None:
    assert corpus.make_companies(7) == corpus.make_companies(7)
    assert corpus.make_companies(7) != corpus.make_companies(8)


def test_search_finds_a_company_by_name_and_by_trade_and_town(db: sqlite3.Connection) -> None:
    company = corpus.make_companies(7)[0]
    for words in (company.name, f"{company.trade} {company.town}"):
        assert server.search(db, f"{words} 2021").startswith(company.path(2021) + " | ")


def test_cat_opens_what_list_shows(db: sqlite3.Connection) -> None:
    slug = corpus.make_companies(7)[0].slug
    for path in server.list_paths(db, slug).split():
        assert server.cat(db, f"/{path}.md").startswith(slug.split("-")[0].title())


def test_a_wrong_path_is_answered_with_a_hint(db: sqlite3.Connection) -> None:
    with pytest.raises(server.AgentMistake, match="no document nobody/2021; try search"):
        server.cat(db, "nobody/2021")


def test_calc_does_arithmetic_and_nothing_else() -> None:
    assert server.calc("(482 - 455) / 455") == "0.0593"
    with pytest.raises(server.AgentMistake):
        server.calc("__import__('os')")


def test_every_demonstration_ends_with_the_expected_answer(data: Path) -> None:
    tasks = {row["id"]: row for row in rows(data / "tasks.jsonl")}
    for demo in rows(data / "demos.jsonl"):
        assert demo["messages"][-1]["content"] == f"Answer: {tasks[demo['task_id']]['answer']}"
