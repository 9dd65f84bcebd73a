"""The tools `search`, `list` and `cat` over a corpus."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import PurePosixPath
from typing import Any, cast

import anyio

from learnloop.boundary import boundary
from learnloop.codec import canonical_json
from learnloop.config import CorpusConfig
from learnloop.message import ToolCall, ToolSchema
from learnloop.tool import AgentMistake, Tool, ToolContext, ToolOutput
from learnloop.tools.arguments import argument_error
from learnloop.tools.corpus.index import Corpus
from learnloop.tools.corpus.search import Search
from learnloop.tools.output import output_of

_LISTED = 200
_TEXT = {"type": "string"}
_SCHEMAS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "search": (
        "Find documents that hold the words of a query; the best come first.",
        {"query": {**_TEXT, "description": "Words to look for."}},
        ["query"],
    ),
    "list": (
        "List the documents and folders in a folder.",
        {"path": {**_TEXT, "description": "The folder; left out, all begins at the top."}},
        [],
    ),
    "cat": (
        "Show a document.",
        {
            "path": {**_TEXT, "description": "The document's path, as search and list give it."},
            "start": {"type": "integer", "minimum": 1, "description": "The first line to show."},
        },
        ["path"],
    ),
}
_BY_MEANING: tuple[str, dict[str, Any], list[str]] = (
    "Find documents about what a query says, in whatever words; the best come first.",
    {"query": {**_TEXT, "description": "What to look for: words, or a question."}},
    ["query"],
)


class CorpusTool:
    """One of the tools; what the model did wrong is shown to it."""

    def __init__(self, schema: ToolSchema, answer: Callable[..., str]) -> None:
        self._schema, self._answer = schema, answer

    @property
    def schema(self) -> ToolSchema:
        """Return what the model is told."""
        return self._schema

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Answer a call from the index."""
        if wrong := argument_error(self._schema, call.arguments):
            return ToolOutput(text=wrong, is_error=True)
        arguments = cast("dict[str, Any]", json.loads(call.arguments))
        with boundary("tool"):
            try:
                return output_of(await anyio.to_thread.run_sync(partial(self._answer, **arguments)))
            except AgentMistake as mistake:
                return output_of(f"error: {mistake}", is_error=True)


def corpus_schemas(config: CorpusConfig) -> tuple[ToolSchema, ...]:
    """Return what the model is told of the tools that the project wants."""
    return tuple(_schema(name, config) for name in config.tools) if config.path else ()


def corpus_tools(config: CorpusConfig, corpus: Corpus, search: Search) -> list[Tool]:
    """Return the tools that the project wants over an indexed folder."""
    answers: dict[str, Callable[..., str]] = {
        "search": partial(_search, search, config.results),
        "list": partial(_list, corpus),
        "cat": partial(_cat, corpus, config.cat_characters),
    }
    return [CorpusTool(_schema(name, config), answers[name]) for name in config.tools]


def _schema(name: str, config: CorpusConfig) -> ToolSchema:
    by_meaning = name == "search" and config.search != "bm25"
    description, properties, required = _BY_MEANING if by_meaning else _SCHEMAS[name]
    parameters: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return ToolSchema(
        name=name, description=description, parameters_json=canonical_json(parameters)
    )


def _search(search: Search, results: int, query: str) -> str:
    hits = search(query, results)
    return "\n".join(f"{hit.path} | {hit.snippet}" for hit in hits) or "no document has these words"


def _list(corpus: Corpus, path: str = "") -> str:
    folder = _plain(path)
    head = f"{folder}/" if folder else ""
    below = [place.removeprefix(head) for place in corpus.paths if place.startswith(head)]
    if not below:
        raise AgentMistake(_unknown(f"folder {path!r}", folder, _folders(corpus)))
    names = list(
        dict.fromkeys(f"{first}{slash}" for first, slash, _ in (p.partition("/") for p in below))
    )
    shown = names[:_LISTED]
    if len(names) > _LISTED:
        shown.append(f"... and {len(names) - _LISTED} more; search finds them")
    return "\n".join(shown)


def _cat(corpus: Corpus, most: int, path: str, start: float = 1) -> str:
    start = int(start)  # in a JSON schema, 2.0 is an integer
    place = _plain(path)
    # Asked only for what it has: SQLite takes no half of a surrogate pair, which JSON can hold.
    text = corpus.text(place) if place in corpus.paths else None
    if text is None:
        raise AgentMistake(_unknown(f"document {path!r}", place, corpus.paths))
    # A line longer than the cap counts as several, so that all of it can be reached.
    lines = [
        line[at : at + most] for line in text.splitlines() for at in range(0, len(line) or 1, most)
    ]
    if start > max(1, len(lines)):
        raise AgentMistake(f"{place} has only {len(lines)} lines")
    shown: list[str] = []
    left = most
    for line in lines[start - 1 :]:
        if shown and len(line) + 1 > left:
            break
        shown.append(line)
        left -= len(line) + 1
    after = start + len(shown)
    if after <= len(lines):
        shown.append(f"... (lines {start} to {after - 1} of {len(lines)}; start={after} goes on)")
    return "\n".join(shown)


def _plain(path: str) -> str:
    """Return a path as the index writes it: `./a/b`, `/a/b` and `a/b/` are `a/b`."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", ".")]
    return "/".join(parts)


def _folders(corpus: Corpus) -> Sequence[str]:
    return sorted({str(up) for path in corpus.paths for up in PurePosixPath(path).parents} - {"."})


def _unknown(what: str, place: str, known: Sequence[str]) -> str:
    close = get_close_matches(place, known, n=3, cutoff=0.5)
    return f"no {what}" + (f"; there is {', '.join(close)}" if close else "")
