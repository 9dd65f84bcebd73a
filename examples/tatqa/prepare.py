"""Turns a TAT-QA file into this project's data: tasks and an index of the documents.

    python prepare.py --data tatqa_dataset_dev.json --out data

FILE is one of the JSON files of https://github.com/NExTplusplus/TAT-QA (CC BY 4.0). Without
`--data`, the variable TATQA_FILE names it. Written are `tasks.jsonl` and `documents.sqlite`. Every
gold answer is graded before it is kept, and so is the answer of another question; the counts are
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from answers import Gold, score

Row = dict[str, Any]

REFUSED = "the grader does not accept the gold answer"


@dataclass(frozen=True, kw_only=True)
class Document:
    """One excerpt of an annual report: a path, a title, and all its text."""

    path: str
    title: str
    text: str


@dataclass(kw_only=True)
class Prepared:
    """What a file became, and how many questions were left out for which reason."""

    documents: list[Document] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    judged: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def main() -> None:
    """Read the command line, write the data, print the counts."""
    parser = argparse.ArgumentParser(description="Turns a TAT-QA file into this project's data.")
    parser.add_argument("--data", type=Path, default=os.environ.get("TATQA_FILE"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.data is None:
        sys.exit("name the TAT-QA file: python prepare.py --data FILE --out data (see README.md)")
    try:
        prepared = prepare(json.loads(Path(options.data).read_text(encoding="utf-8-sig")))
    except OSError as error:
        sys.exit(f"{options.data}: cannot be read ({error.strerror})")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        sys.exit(f"{options.data}: is no TAT-QA file with answers ({error!r})")
    write(prepared, options.out)
    print(summary(prepared))


def prepare(entries: Sequence[Row]) -> Prepared:
    """Return documents and tasks; what the grader cannot judge is left out and counted.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the data has another form.
    """
    prepared = Prepared()
    for entry in entries:
        document = make_document(entry)
        prepared.documents.append(document)
        for question in entry["questions"]:
            add_row(prepared, document, question)
    leave_out_shared(prepared)
    if not prepared.rows:
        raise ValueError("no question can be used")
    return prepared


def leave_out_shared(prepared: Prepared) -> None:
    """Leave out questions that several documents are asked in the same words.

    The agent sees the question only, so nothing tells which document is meant; and in two splits
    such a question would give its answer away.
    """
    asked: dict[str, set[str]] = {}
    for row in prepared.rows:
        asked.setdefault(wording(row), set()).add(row["document"])
    kept = [row for row in prepared.rows if len(asked[wording(row)]) == 1]
    if shared := len(prepared.rows) - len(kept):
        prepared.left_out["several documents are asked the same"] = shared
    prepared.rows = kept


def wording(row: Row) -> str:
    """Return a question's words, spaces and letter case evened out."""
    return " ".join(row["messages"][0]["content"].split()).casefold()


def add_row(prepared: Prepared, document: Document, question: Row) -> None:
    """Add one question, unless its gold answer cannot be judged."""
    try:
        gold = Gold.of(question)
    except ValueError as error:
        prepared.left_out[str(error)] += 1
        return
    prepared.judged += 1
    if score(f"Answer: {gold.text()}", gold) < 1:
        prepared.left_out[REFUSED] += 1
        return
    prepared.rows.append(
        {
            "id": question["uid"],
            "group": document.path,
            "kind": question["answer_type"],
            "messages": [{"role": "user", "content": question["question"]}],
            "answer": gold.text(),
            "gold": {k: question.get(k) for k in ("answer", "scale", "answer_type")},
            "derivation": question.get("derivation", ""),
            "document": document.path,
        }
    )


def make_document(entry: Row) -> Document:
    """Return an excerpt as readable text: paragraphs in their order, then the table, a row a line."""
    table = [[str(cell).strip() for cell in line] for line in entry["table"]["table"]]
    paragraphs = sorted(entry["paragraphs"], key=lambda p: p["order"])
    title = title_of(table, paragraphs)
    lines = [title, "", *(p["text"].strip() for p in paragraphs), ""]
    lines += [" | ".join(line) for line in table if any(line)]
    return Document(
        path=f"{slug(title)}-{entry['table']['uid'][:8]}", title=title, text="\n".join(lines)
    )


def title_of(table: Sequence[Sequence[str]], paragraphs: Sequence[Row]) -> str:
    """Return the first labels of the table; excerpts have no title of their own."""
    labels = [line[0].rstrip(": ") for line in table if line and re.search("[A-Za-z]", line[0])]
    if labels:
        return ", ".join(dict.fromkeys(labels[:3]))[:100]
    return paragraphs[0]["text"][:100] if paragraphs else "untitled"


def slug(title: str) -> str:
    """Return the first words of a title as a path."""
    return "-".join(re.findall(r"[a-z]+", title.lower())[:4]) or "document"


def write(prepared: Prepared, folder: Path) -> None:
    """Write both files; the tasks come last, so that they are only there when all is."""
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "documents.sqlite"
    index.unlink(missing_ok=True)
    with closing(sqlite3.connect(index)) as db, db:
        db.execute("CREATE TABLE documents (path TEXT PRIMARY KEY, title TEXT, text TEXT)")
        db.execute("CREATE VIRTUAL TABLE words USING fts5(path, title, text, tokenize='porter')")
        found = [(d.path, d.title, d.text) for d in prepared.documents]
        db.executemany("INSERT INTO documents VALUES (?, ?, ?)", found)
        db.executemany("INSERT INTO words VALUES (?, ?, ?)", found)
    lines = "".join(json.dumps(row) + "\n" for row in prepared.rows)
    (folder / "tasks.jsonl").write_text(lines, encoding="utf-8")


def shuffled_scores(rows: Sequence[Row]) -> list[float]:
    """Return what each question gives for the answer of another one of its kind.

    Half a dataset away is another document. Equal answers (a year, say) would tell nothing.
    """
    found: list[float] = []
    for kind in sorted({row["kind"] for row in rows}):
        same = [row for row in rows if row["kind"] == kind]
        for place, row in enumerate(same):
            turned = [*same[place:], *same[:place]]
            others = [*turned[len(same) // 2 :], *turned[: len(same) // 2]]
            other = next((o for o in others if o["answer"] != row["answer"]), None)
            if other is not None:
                found.append(score(f"Answer: {other['answer']}", Gold.of(row["gold"])))
    return found


def summary(prepared: Prepared) -> str:
    """Return the counts as lines."""
    kinds = Counter(row["kind"] for row in prepared.rows)
    wrong = shuffled_scores(prepared.rows)
    accepted = sum(value == 1 for value in wrong)
    refused = prepared.left_out[REFUSED]
    lines = [
        f"{len(prepared.documents)} documents, {len(prepared.rows)} questions: "
        + ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items())),
        f"gold answers accepted: {prepared.judged - refused} of {prepared.judged}",
        f"answers of other questions accepted: {accepted} of {len(wrong)}, mean score "
        f"{sum(wrong) / max(1, len(wrong)):.3f}",
    ]
    lines += [f"left out: {n} ({why})" for why, n in sorted(prepared.left_out.items()) if n]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
