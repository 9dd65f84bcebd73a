"""Serves the tools over TAT-QA's documents, and the grader.

    python server.py --port 8600 --data data

`POST /search`, `/list`, `/cat` and `/calc` take a `function_call` and answer with its output;
`POST /grade` takes a finished rollout and answers `{"score": number}` by `answers.py`. A mistake of
the agent is a 4xx with a text that helps.
"""

from __future__ import annotations

import argparse
import ast
import json
import operator
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from answers import Gold, final_answer, score
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

DATA = Path(__file__).parent / "data"
MAX_BODY_BYTES = 1_000_000
MAX_WORDS, MAX_HITS, MAX_LISTED = 32, 5, 30
MAX_EXPRESSION, MAX_DEPTH = 200, 30


class Mistake(Exception):
    """A request that cannot be answered as it was made; the text says what to do instead."""

    def __init__(self, text: str, status: int = 400) -> None:
        self.status = status
        super().__init__(text)


# --- the tools -----------------------------------------------------------------------------------


def open_index(path: Path) -> sqlite3.Connection:
    """Open the index for reading only."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)


def search(db: sqlite3.Connection, query: str) -> str:
    """Return the best documents by BM25, `path | snippet` a line."""
    words = re.findall(r"[^\W_]+", query.lower())[:MAX_WORDS]
    if not words:
        raise Mistake("empty query; give words of the question")
    # Quoted, so that nothing in a query is FTS syntax.
    terms = " OR ".join(f'"{word}"' for word in words)
    rows = db.execute(
        "SELECT path, snippet(words, 2, '', '', '...', 16) FROM words WHERE words MATCH ?"
        " ORDER BY bm25(words, 0.0, 3.0, 1.0), path LIMIT ?",
        (terms, MAX_HITS),
    ).fetchall()
    if not rows:
        raise Mistake("nothing found; try other words", 404)
    return "\n".join(f"{path} | {' '.join(snippet.split())}" for path, snippet in rows)


def list_paths(db: sqlite3.Connection, prefix: str) -> str:
    """Return the paths that begin like this."""
    start = prefix.strip().strip("/").lower()
    paths = [row[0] for row in db.execute("SELECT path FROM documents ORDER BY path")]
    found = [path for path in paths if path.startswith(start)]
    if not found:
        raise Mistake(f"no document begins with {start[:40]}; try search", 404)
    more = f"\n({len(found) - MAX_LISTED} more)" if len(found) > MAX_LISTED else ""
    return "\n".join(found[:MAX_LISTED]) + more


def cat(db: sqlite3.Connection, path: str) -> str:
    """Return the text of one document."""
    name = path.strip().strip("/").lower()
    row = db.execute("SELECT text FROM documents WHERE path = ?", (name,)).fetchone()
    if row is None:
        raise Mistake(f"no document {name[:60]}; search and list give paths", 404)
    return row[0]


OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calc(_: sqlite3.Connection, expression: str) -> str:
    """Return the value of an arithmetic expression; commas in numbers and `$` do not count."""
    text = re.sub(r"[$,\s]", "", expression)
    if not text or len(text) > MAX_EXPRESSION or not re.fullmatch(r"[0-9+\-*/().]+", text):
        raise Mistake("only numbers and + - * / ( ), like (795 - 772) / 772")
    try:
        value = value_of(ast.parse(text, mode="eval").body, MAX_DEPTH)
    except SyntaxError as error:
        raise Mistake("not an expression; write it like (795 - 772) / 772") from error
    except ZeroDivisionError as error:
        raise Mistake("division by zero") from error
    except OverflowError as error:
        raise Mistake("the result is too large") from error
    return f"{value:.6f}".rstrip("0").rstrip(".")


def value_of(node: ast.expr, depth: int) -> float:
    """Return the value of a syntax tree made of numbers and the four operations."""
    if depth == 0:
        raise Mistake("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -value_of(inner, depth - 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value_of(left, depth - 1), value_of(right, depth - 1))
        case _:
            raise Mistake("only + - * / and parentheses")


TOOLS: dict[str, tuple[str, Callable[[sqlite3.Connection, str], str]]] = {
    "search": ("query", search),
    "list": ("prefix", list_paths),
    "cat": ("path", cat),
    "calc": ("expression", calc),
}


def run_tool(db: sqlite3.Connection, tool: str, raw: object) -> str:
    """Return a tool's output for the arguments as the model wrote them."""
    key, function = TOOLS[tool]
    try:
        arguments = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError) as error:
        raise Mistake(f'arguments are no JSON; send {{"{key}": "..."}}') from error
    value = arguments.get(key) if isinstance(arguments, dict) else None
    if not isinstance(value, str):
        raise Mistake(f"{tool} needs one string argument: {key}")
    # Half a surrogate pair, which JSON can carry, is no text that the index could take.
    return function(db, value.encode("utf-8", "replace").decode())


# --- the grader ----------------------------------------------------------------------------------


def grade(sample: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """Score one rollout; `opened` tells whether the question's document was read, and is no reward."""
    text = sample.get("output_text") or ""
    gold = Gold.of(item["gold"])
    calls = [call["function"] for call in sample.get("output_tools") or []]
    opened = any(c["name"] == "cat" and item["document"] in c["arguments"].lower() for c in calls)
    value = score(text, gold)
    return {
        "score": value,
        "sub_scores": {"exact": float(value == 1), "opened": float(opened)},
        "explanation": f"{final_answer(text)[:80]!r} against {gold.text()[:80]!r}",
    }


# --- the wire contract ---------------------------------------------------------------------------


async def read(request: Request) -> dict[str, Any]:
    """Return the body as an object, or raise Mistake."""
    body = await request.body()
    if len(body) > MAX_BODY_BYTES:
        raise Mistake("the request is over 1 MB", 413)
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise Mistake("the body is no JSON object")
    return data


def make_app(data: Path) -> Starlette:
    """Return the application over a folder that prepare.py wrote."""
    db = open_index(data / "documents.sqlite")

    async def tool(request: Request) -> Response:
        call: dict[str, Any] = {}
        status = 200
        try:
            call = await read(request)
            output = run_tool(db, request.url.path.strip("/"), call.get("arguments"))
        except Mistake as mistake:
            status, output = mistake.status, str(mistake)
        reply = {"type": "function_call_output", "output": output}
        return JSONResponse(reply | {k: call.get(k) for k in ("call_id", "id")}, status_code=status)

    async def grader(request: Request) -> Response:
        try:
            data = await read(request)
            return JSONResponse(grade(data["sample"], data["item"]))
        except (KeyError, ValueError) as wrong:
            return JSONResponse({"error": f"cannot be graded: {wrong}"}, status_code=400)
        except Mistake as mistake:
            return JSONResponse({"error": str(mistake)}, status_code=mistake.status)

    async def health(_: Request) -> Response:
        return JSONResponse({"ok": True})

    tools = [Route(f"/{name}", tool, methods=["POST"]) for name in TOOLS]
    return Starlette(
        routes=[Route("/health", health), Route("/grade", grader, methods=["POST"]), *tools]
    )


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="Serves the tools and the grader.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that prepare.py wrote")
    options = parser.parse_args()
    if not (options.data / "documents.sqlite").exists():
        parser.exit(1, f"{options.data} holds no documents: run prepare.py first (README.md)\n")
    app = make_app(options.data)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
