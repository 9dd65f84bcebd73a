"""Compares the three ways to search a corpus on TAT-QA: is the question's own document found?

    python bench/corpus_search.py ../shared/data/tatqa_dataset_dev.json

Each context (paragraphs and table) is a document, each question a query. Prints hits within 1 and 5
results, the time to index and embed, and the time of a query. Needs the extra `[semantic]`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from learnloop.config import CorpusConfig
from learnloop.tools.corpus import Corpus, open_search

QUESTIONS = 400


def write_documents(contexts: list[dict[str, Any]], folder: Path) -> list[tuple[str, str]]:
    """Write a file for each context; return pairs of a question and its document."""
    asked: list[tuple[str, str]] = []
    for number, context in enumerate(contexts):
        name = f"{number:04}.txt"
        parts = ["\t".join(row) for row in context["table"]["table"]]
        parts += [paragraph["text"] for paragraph in context["paragraphs"]]
        (folder / name).write_text("\n".join(parts))
        asked += [(question["question"], name) for question in context["questions"]]
    return asked[:: max(1, len(asked) // QUESTIONS)]


def measure(how: Any, corpus: Corpus, asked: list[tuple[str, str]]) -> None:
    """Print how often one way of searching finds the document, and how long it takes."""
    start_s = time.perf_counter()
    search = anyio.run(open_search, CorpusConfig(path="docs", search=how), corpus)
    opened_s = time.perf_counter() - start_s
    ranks: list[int] = []
    start_s = time.perf_counter()
    for question, name in asked:
        paths = [hit.path for hit in search(question, 5)]
        ranks.append(paths.index(name) if name in paths else 9)
    query_ms = 1000 * (time.perf_counter() - start_s) / len(asked)
    found = {most: sum(rank < most for rank in ranks) / len(ranks) for most in (1, 5)}
    print(
        f"{how:9} first {found[1]:.3f}  among five {found[5]:.3f}  "
        f"opened in {opened_s:.1f} s, {query_ms:.1f} ms a query"
    )


def main() -> None:
    """Measure all three ways, and one of them again with its vectors there."""
    contexts = json.loads(Path(sys.argv[1]).read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "docs")
        folder.mkdir()
        asked = write_documents(contexts, folder)
        start_s = time.perf_counter()
        corpus = Corpus.open(folder, Path(name, "corpus.db"))
        took_s = time.perf_counter() - start_s
        print(f"{len(corpus.paths)} documents indexed in {took_s:.2f} s; {len(asked)} questions")
        for how in ("bm25", "semantic", "hybrid"):
            measure(how, corpus, asked)


if __name__ == "__main__":
    main()
