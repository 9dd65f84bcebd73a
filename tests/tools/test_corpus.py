"""The built-in tools over a folder of documents."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from learnloop.config import Config, CorpusConfig
from learnloop.errors import ConfigError
from learnloop.message import ToolCall
from learnloop.outbound import Outbound
from learnloop.tool import Tool, ToolContext, ToolOutput
from learnloop.tools.corpus import Corpus
from learnloop.tools.opening import open_tools, own_schemas

CONTEXT = ToolContext(trace_id="trace_1")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "2023").mkdir(parents=True)
    (folder / "readme.md").write_text("All reports of the company.\n")
    (folder / "2023" / "sales.txt").write_text("Sales rose to 12 million.\nThe north sold most.\n")
    (folder / "2023" / "costs.txt").write_text("Costs fell. Energy was cheaper.\n")
    (folder / "photo.png").write_bytes(b"\x89PNG\0\0")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / ".hidden").write_text("sales sales sales")
    (tmp_path / "secret.txt").write_text("sales password")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    return folder


def ask(folder: Path, name: str, settings: Mapping[str, Any] = {}, **arguments: Any) -> ToolOutput:
    async def run() -> ToolOutput:
        config = Config(corpus=CorpusConfig(path="docs", **settings))
        async with (
            Outbound() as outbound,
            open_tools(config, folder.parent, lambda: folder.parent, outbound) as tools,
        ):
            tool: Tool = tools[name]
            call = ToolCall(id="call_1", name=name, arguments=json.dumps(arguments))
            return await tool.call(call, CONTEXT)

    return anyio.run(run)


def test_search_returns_paths_and_snippets_best_first(docs: Path) -> None:
    lines = ask(docs, "search", query="sale company").text.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("2023/sales.txt | Sales rose to 12 million. The north")
    assert lines[1] == "readme.md | All reports of the company."


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "\ud800",
        "word " * 20_000,
        " ".join(map(str, range(5000))),
        "AND OR NOT",
        "a* NEAR(",
        "path:x",
        "",
        "'; drop",
    ],
    ids=lambda query: ascii(query[:20]),
)
def test_no_query_breaks_the_search(docs: Path, query: str) -> None:
    assert not ask(docs, "search", query=query).is_error


def test_search_returns_at_most_as_many_as_set(docs: Path) -> None:
    text = ask(docs, "search", {"results": 1}, query="sales company costs").text
    assert len(text.splitlines()) == 1


def test_list_shows_the_children_of_a_folder(docs: Path) -> None:
    assert ask(docs, "list").text == "2023/\nreadme.md"
    assert ask(docs, "list", path="./2023/").text == "costs.txt\nsales.txt"
    wrong = ask(docs, "list", path="2024")
    assert wrong == ToolOutput(text="error: no folder '2024'; there is 2023", is_error=True)


def test_cat_shows_a_document_and_says_how_to_go_on(docs: Path) -> None:
    (docs / "long.txt").write_text("\n".join(f"line {n} of many words" for n in range(1, 31)))
    assert ask(docs, "cat", path="/2023/costs.txt").text == "Costs fell. Energy was cheaper."
    first = ask(docs, "cat", {"cat_characters": 100}, path="long.txt").text.splitlines()
    assert first[-1] == "... (lines 1 to 4 of 30; start=5 goes on)"
    rest = ask(docs, "cat", {"cat_characters": 100}, path="long.txt", start=29).text
    assert rest == "line 29 of many words\nline 30 of many words"
    assert ask(docs, "cat", {"cat_characters": 100}, path="long.txt", start=29.0).text == rest
    assert ask(docs, "cat", path="long.txt", start=31).is_error


def test_one_endless_line_can_be_read_to_its_end(docs: Path) -> None:
    (docs / "line.txt").write_text("x" * 250 + "end")
    text = ask(docs, "cat", {"cat_characters": 100}, path="line.txt", start=3).text
    assert text == "x" * 50 + "end"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "/etc/passwd",
        "\ud800",
        "a\0b",
        "link.txt",
        "up/secret.txt",
        "2023/../../secret.txt",
    ],
    ids=ascii,
)
def test_no_path_leads_out_of_the_folder(docs: Path, path: str) -> None:
    assert ask(docs, "cat", path=path).is_error
    assert "password" not in ask(docs, "search", query="sales password").text


def test_wrong_arguments_are_shown_to_the_model(docs: Path) -> None:
    assert ask(docs, "cat", path=3).is_error
    assert ask(docs, "search").is_error


def test_the_index_follows_the_files_and_counts_what_it_cannot_read(docs: Path) -> None:
    index = docs.parent / "corpus.db"
    first = Corpus.open(docs, index)
    assert first.skipped == ("latin.txt", "photo.png")
    before = first.fingerprint()
    assert Corpus.open(docs, index).fingerprint() == before
    (docs / "2023" / "costs.txt").unlink()
    (docs / "readme.md").write_text("Nothing here.")
    os.utime(docs / "2023" / "sales.txt", ns=(1, 1))
    after = Corpus.open(docs, index)
    assert after.paths == ("2023/sales.txt", "readme.md")
    assert after.search("company energy", 5) == []
    assert [hit.path for hit in after.search("sales", 5)] == ["2023/sales.txt"]
    assert after.fingerprint() != before


def test_a_missing_or_empty_folder_is_told(docs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        Corpus.open(tmp_path / "none", tmp_path / "corpus.db")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no text"):
        Corpus.open(tmp_path / "empty", tmp_path / "corpus.db")


def test_only_the_tools_that_are_wanted_are_offered(tmp_path: Path) -> None:
    config = Config(corpus=CorpusConfig(path="docs", tools=("search", "cat")))
    assert [s.name for s in own_schemas(config, tmp_path, tmp_path)] == ["search", "cat"]
    assert own_schemas(Config(), tmp_path, tmp_path) == ()
