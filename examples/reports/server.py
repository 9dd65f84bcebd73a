"""Serves the four tools over HTTP: search, list, cat and calc.

    python server.py --port 8400 [--latency-ms 200]

The tools themselves are plain functions below; the rest speaks the wire contract. A mistake of
the agent (no such document, an expression that does not parse) is a 4xx with a text that helps.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import operator
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

DATA = Path(__file__).parent / "data"
ROOT_CHILDREN = 20
MAX_BODY_BYTES = 1_000_000
MAX_EXPRESSION = 120
MAX_DEPTH = 20
MAX_WORDS = 32
# Words of questions that tell no report from another.
STOPWORDS = (
    "a an and as at before by change company compute did divide divided find first for "
    "from give had how highest higher in income is it its large maker minus much net number of "
    "operating profit ratio report reported restated restatement revenue sells subtract than that "
    "the to was what when which year"
)


class AgentMistake(Exception):
    """A call that cannot be answered as it was made; the text says what to do instead."""

    def __init__(self, text: str, status: int = 400) -> None:
        self.status = status
        super().__init__(text)


# --- the tools -----------------------------------------------------------------------------------


def open_index(path: Path) -> sqlite3.Connection:
    """Open the index for reading only."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)


def search(db: sqlite3.Connection, query: str) -> str:
    """Return `path | snippet` of the best document by BM25."""
    written = re.findall(r"[^\W_]+", query.lower())[:MAX_WORDS]
    words = [word for word in written if word not in STOPWORDS.split()] or written
    if not words:
        raise AgentMistake("empty query; give a name and a year")
    # Quoted, so that nothing in a query is FTS syntax. A year means the report's own year: nearly
    # every table mentions it, which would leave it without weight.
    terms = [f'year : "{w}"' if re.fullmatch(r"(19|20)\d\d", w) else f'"{w}"' for w in words]
    row = db.execute(
        "SELECT path, snippet(words, 3, '', '', '...', 12) FROM words WHERE words MATCH ?"
        " ORDER BY bm25(words, 20.0, 20.0, 20.0, 10.0, 0.2), path LIMIT 1",
        (" OR ".join(terms),),
    ).fetchone()
    if row is None:
        raise AgentMistake("nothing found; try a company name, or its trade and town", 404)
    return f"{row[0]} | {row[1]}"


def list_paths(db: sqlite3.Connection, path: str) -> str:
    """Return the children of a path in one line: companies, or the reports of one company."""
    folder = path.strip().strip("/.").lower()
    if not folder:
        names = [
            row[0].partition("/")[0] for row in db.execute("SELECT path FROM reports ORDER BY path")
        ]
        unique = list(dict.fromkeys(names))
        return f"{len(unique)} companies: {' '.join(unique[:ROOT_CHILDREN])} ..."
    found = children(db, folder)
    if found:
        return " ".join(found)
    if "/" in folder:
        raise AgentMistake(f"{folder[:40]} is no folder; open a report with cat", 404)
    raise AgentMistake(f"no folder {folder[:40]}; try search", 404)


def children(db: sqlite3.Connection, folder: str) -> list[str]:
    """Return the paths of one company's reports."""
    span = (f"{folder}/", f"{folder}0")  # "0" is the character after "/"
    rows = db.execute("SELECT path FROM reports WHERE path > ? AND path < ? ORDER BY path", span)
    return [row[0] for row in rows]


def cat(db: sqlite3.Connection, path: str) -> str:
    """Return the text of one report."""
    name = path.strip().strip("/").lower().removesuffix(".md")
    row = db.execute("SELECT text FROM reports WHERE path = ?", (name,)).fetchone()
    if row is not None:
        return row[0]
    if years := children(db, name.partition("/")[0]):
        raise AgentMistake(f"no document {name[:40]}; there is {years[0]} to {years[-1]}", 404)
    raise AgentMistake(f"no document {name[:40]}; try search", 404)


OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calc(expression: str) -> str:
    """Return the value of an arithmetic expression, at most four decimals."""
    text = expression.strip()
    if not text or len(text) > MAX_EXPRESSION or not re.fullmatch(r"[0-9+\-*/(). ]+", text):
        raise AgentMistake("only numbers and + - * / ( ), like 482 - 455")
    try:
        value = value_of(ast.parse(text, mode="eval").body, MAX_DEPTH)
    except SyntaxError as error:
        raise AgentMistake("not an expression; write it like 482 - 455") from error
    except ZeroDivisionError as error:
        raise AgentMistake("division by zero") from error
    except OverflowError as error:
        raise AgentMistake("the result is too large") from error
    return plain(value)


def value_of(node: ast.expr, depth: int) -> float:
    """Return the value of a syntax tree made of numbers and the four operations."""
    if depth == 0:
        raise AgentMistake("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -value_of(inner, depth - 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value_of(left, depth - 1), value_of(right, depth - 1))
        case _:
            raise AgentMistake("only + - * / and parentheses, like (482 - 455) / 455")


def plain(value: float) -> str:
    """Return a number with at most four decimals and no trailing zeros."""
    if isinstance(value, int):
        return str(value)
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


# --- the wire contract ---------------------------------------------------------------------------

ToolFunction = Callable[[sqlite3.Connection, str], str]
# Each tool takes one string; its key is the name the model is told of.
TOOLS: dict[str, tuple[str, ToolFunction]] = {
    "search": ("query", search),
    "list": ("path", list_paths),
    "cat": ("path", cat),
    "calc": ("expression", lambda _, expression: calc(expression)),
}


def answer(db: sqlite3.Connection, tool: str, raw_arguments: object) -> str:
    """Return a tool's output for the arguments as the model wrote them."""
    key, function = TOOLS[tool]
    try:
        arguments = json.loads(raw_arguments) if isinstance(raw_arguments, str) else raw_arguments
    except (ValueError, RecursionError) as error:
        raise AgentMistake(f'arguments are no JSON; send {{"{key}": "..."}}') from error
    value = arguments.get(key) if isinstance(arguments, dict) else None
    if not isinstance(value, str):
        raise AgentMistake(f"{tool} needs one string argument: {key}")
    # Half a surrogate pair, which JSON can carry, is no text that the index could take.
    return function(db, value.encode("utf-8", "replace").decode())


def reply(status: int, output: str, item: dict[str, object] | None = None) -> Response:
    """Return a function_call_output; plain ASCII, so that any text the model wrote can go back."""
    ids = {key: item.get(key) for key in ("call_id", "id")} if item else {}
    body = json.dumps({"type": "function_call_output", **ids, "output": output})
    return Response(body, status_code=status, media_type="application/json")


def read_call(body: bytes) -> dict[str, object]:
    """Return the request as an object, or raise AgentMistake."""
    if len(body) > MAX_BODY_BYTES:
        raise AgentMistake("the request is over 1 MB", 413)
    try:
        item = json.loads(body)
    except (ValueError, RecursionError):
        item = None
    if not isinstance(item, dict) or item.get("type", "function_call") != "function_call":
        raise AgentMistake("the body is no function_call object")
    return item


def make_app(data: Path, latency_s: float = 0.0) -> Starlette:
    """Return the application over the index in a data folder."""
    db = open_index(data / "reports.sqlite")

    async def call(request: Request) -> Response:
        item = None
        try:
            item = read_call(await request.body())
            await asyncio.sleep(latency_s)
            output = answer(db, request.url.path.strip("/"), item.get("arguments"))
        except AgentMistake as mistake:
            return reply(mistake.status, str(mistake), item)
        return reply(200, output, item)

    async def health(_: Request) -> Response:
        return reply(200, "ok")

    tools = [Route(f"/{name}", call, methods=["POST"]) for name in TOOLS]
    return Starlette(routes=[Route("/health", health), *tools])


def main() -> None:
    """Read the command line, make missing data and serve."""
    parser = argparse.ArgumentParser(description="Serves the four tools.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency-ms", type=float, default=0.0, help="delay of every call")
    parser.add_argument("--data", type=Path, default=DATA, help="folder that corpus.py wrote")
    options = parser.parse_args()
    index = options.data / "reports.sqlite"
    if not index.exists():
        if others := sorted(path.name for path in options.data.glob("*.jsonl")):
            # Writing everything anew would replace a world that another seed may have made.
            remedy = f"run corpus.py --out {options.data} --seed SEED with the seed of the others"
            parser.exit(1, f"{index.name} is missing beside {', '.join(others)}: {remedy}\n")
        import corpus  # only then: the generator itself imports this module

        corpus.write_all(options.data)
    app = make_app(options.data, options.latency_ms / 1000)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
