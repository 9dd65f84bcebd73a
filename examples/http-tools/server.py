"""The team's endpoints: two tools under one address, and a grader under another.

    python server.py --port 8500

Both speak the wire contract of hosted agent fine-tuning: `POST /tools` takes a `function_call` and
answers a `function_call_output`; `POST /grade` takes `{sample, item, trace_id}` and answers
`{"score": number}`. What the agent does wrong is a 4xx with a text that it can act on.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from typing import Any

import uvicorn
from catalogue import Product, make_catalogue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

MAX_BODY_BYTES = 1_000_000
MAX_HITS = 6
STATED = re.compile(r"answer\s*:\s*(.*)", re.IGNORECASE)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")

CATALOGUE = {product.sku: product for product in make_catalogue()}


class Mistake(Exception):
    """A request that cannot be answered as it was made; the text says what to do instead."""

    def __init__(self, text: str, status: int = 400) -> None:
        self.status = status
        super().__init__(text)


# --- the tools -----------------------------------------------------------------------------------


def search(query: str) -> str:
    """Return the products whose names hold most of the words."""
    words = set(re.findall(r"[a-z]+", query.lower()))
    if not words:
        raise Mistake("empty query; give the words of a product's name")

    def hits(product: Product) -> int:
        return len(words & set(product.name.split()))

    best = max(map(hits, CATALOGUE.values()))
    if best == 0:
        raise Mistake("nothing found; try a material and a thing, such as oak lamp", 404)
    found = [product for product in CATALOGUE.values() if hits(product) == best]
    more = f"\n({len(found) - MAX_HITS} more)" if len(found) > MAX_HITS else ""
    return "\n".join(f"{p.sku} {p.name}" for p in found[:MAX_HITS]) + more


def lookup(sku: str) -> str:
    """Return what the catalogue says about one product."""
    product = CATALOGUE.get(sku.strip().upper())
    if product is None:
        raise Mistake(f"no product {sku[:20]}; search gives the numbers", 404)
    return f"{product.name}: price {product.price:g}, stock {product.stock}"


TOOLS = {"search": ("query", search), "lookup": ("sku", lookup)}


def run_tool(call: dict[str, Any]) -> str:
    """Return a tool's output; one address serves both, so the name chooses."""
    if call.get("name") not in TOOLS:
        raise Mistake(f"unknown tool {call.get('name')}; tools: {', '.join(TOOLS)}", 404)
    key, function = TOOLS[call["name"]]
    try:
        arguments = json.loads(call.get("arguments") or "{}")
    except (TypeError, ValueError, RecursionError) as error:
        raise Mistake(f'arguments are no JSON; send {{"{key}": "..."}}') from error
    value = arguments.get(key) if isinstance(arguments, dict) else None
    if not isinstance(value, str):
        raise Mistake(f"{call['name']} needs one string argument: {key}")
    return function(value)


# --- the grader ----------------------------------------------------------------------------------


def grade(sample: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """Score one rollout: 1 for the right number behind `Answer:`, else 0.

    `looked_up` tells whether the products of the question were opened; it is shown, not rewarded.
    """
    lines = (sample.get("output_text") or "").strip().splitlines()
    stated = STATED.fullmatch(lines[-1].strip()) if lines else None
    numbers = NUMBER.findall(stated[1]) if stated else []
    right = len(numbers) == 1 and math.isclose(float(numbers[0]), item["answer"], abs_tol=0.005)
    asked = {
        str(call["function"]["arguments"]).upper() for call in sample.get("output_tools") or []
    }
    opened = [any(sku in text for text in asked) for sku in item.get("skus") or []]
    why = f"{numbers[0]} against {item['answer']:g}" if len(numbers) == 1 else "no single number"
    return {
        "score": float(right),
        "sub_scores": {"looked_up": sum(opened) / max(1, len(opened))},
        "explanation": why,
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


async def post_tool(request: Request) -> Response:
    """Answer a `function_call` with a `function_call_output`."""
    call: dict[str, Any] = {}
    status = 200
    try:
        call = await read(request)
        output = run_tool(call)
    except Mistake as mistake:
        status, output = mistake.status, str(mistake)
    reply = {"type": "function_call_output", "output": output}
    return JSONResponse(reply | {k: call.get(k) for k in ("call_id", "id")}, status_code=status)


async def post_grade(request: Request) -> Response:
    """Answer a finished rollout with its score."""
    try:
        data = await read(request)
        return JSONResponse(grade(data["sample"], data["item"]))
    except KeyError as missing:
        return JSONResponse({"error": f"the request lacks {missing}"}, status_code=400)
    except Mistake as mistake:
        return JSONResponse({"error": str(mistake)}, status_code=mistake.status)


async def health(_: Request) -> Response:
    """Say that the server is up."""
    return JSONResponse({"ok": True})


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="Serves the tools and the grader.")
    parser.add_argument("--port", type=int, required=True)
    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/tools", post_tool, methods=["POST"]),
            Route("/grade", post_grade, methods=["POST"]),
        ]
    )
    port = parser.parse_args().port
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
