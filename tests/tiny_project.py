"""A whole project in a few lines: one service with two tools and a grader, twelve rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = """\
[project]
name = "tiny"

[model]
ref = "model"

[[tools]]
name = "search"
server_url = "{service:box}/call"
description = "Finds."
[tools.parameters]
type = "object"

[[tools]]
name = "cat"
server_url = "{service:box}/call"
description = "Opens."
[tools.parameters]
type = "object"

[[services]]
name = "box"
command = ["{python}", "server.py", "{port}"]

[network]
allow_private = true
"""

SERVER = '''
"""Answers calls by tool name, and grades; a wrong name is a 404 that says so."""
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAMES = ("search", "cat")
SCORE = "exact"

class Box(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, {"ok": True})

    def do_POST(self):
        data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path not in ("/call", "/grade"):
            self.answer(404, {"error": "Not Found"})
        elif self.path == "/grade":
            said = data["sample"]["output_text"].split()
            right = said[-1:] == [str(data["item"]["answer"])]
            score = {"exact": float(right), "text": "great", "fooled": 1.0}[SCORE]
            self.answer(200, {"score": score})
        elif data["name"] not in NAMES:
            self.answer(404, {"error": f"unknown tool {data['name']}"})
        else:
            self.answer(200, {"call_id": data["call_id"], "id": data["id"], "output": "found"})

    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Box).serve_forever()
'''

SPLITS = ("train", "train", "train", "screen", "confirm", "test")


def a_row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"task-{number}",
        "split": SPLITS[number % len(SPLITS)],
        "group": f"group-{number}",
        "kind": ("easy", "hard")[number % 2],
        "messages": [{"role": "user", "content": f"How many are {number} and {number}?"}],
        "answer": 2 * number,
        **changes,
    }


def write_rows(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(r) + "\n" for r in rows or [a_row(n) for n in range(12)])
    (folder / "data" / "tasks.jsonl").write_text(text)


def make_project(folder: Path, *, config: str = CONFIG, server: str = SERVER) -> Path:
    """Write a project that passes the check, apart from what the arguments spoil."""
    write_rows(folder)
    (folder / "learnloop.toml").write_text(config)
    (folder / "server.py").write_text(server)
    (folder / "prompts").mkdir()
    (folder / "prompts" / "system.md").write_text("Answer with a number.\n")
    model = folder / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (model / name).write_text("{}")
    return folder


def edit(folder: Path, old: str, new: str, *, file: str = "learnloop.toml") -> None:
    """Replace text in a project's file; the text must be there."""
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
