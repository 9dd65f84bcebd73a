"""Writes the generated part of the documentation.

`docs/config.md` is made from `learnloop.config`, `docs/faults.md` from `learnloop.faults`.

`python docs/generate.py` writes it; `--check` changes nothing and fails when it is out of date.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from learnloop.faults import faults_page

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "learnloop" / "config"
TARGET = ROOT / "docs" / "config.md"
FAULTS = ROOT / "docs" / "faults.md"

HEAD = """# Configuration

Every key of `learnloop.toml`, made from `src/learnloop/config/` by `docs/generate.py`: edit those
files, not this one. A key is set by the file, over it by the environment
(`LEARNLOOP_TRAIN__STEPS=20` sets `train.steps`), over that by a flag of the command line.
"""


def main() -> int:
    """Write the pages, or with `--check` say whether they are up to date."""
    pages = {TARGET: render(), FAULTS: faults_page()}
    if "--check" not in sys.argv:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [p for p, text in pages.items() if not p.exists() or p.read_text("utf-8") != text]
    for path in stale:
        sys.stderr.write(f"{path.relative_to(ROOT)} is out of date: run `make format`\n")
    return int(bool(stale))


def render() -> str:
    """Return the whole reference as Markdown."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCES.glob("*.py"))]
    nodes = [node for tree in trees for node in tree.body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    sections: list[str] = []
    _add_sections(classes, classes["Config"], "", sections)
    return HEAD + "".join(sections)


def _add_sections(
    classes: dict[str, ast.ClassDef], node: ast.ClassDef, prefix: str, sections: list[str]
) -> None:
    for field, _ in _fields(node):
        kind = ast.unparse(field.annotation)
        name = kind.removeprefix("tuple[").removesuffix(", ...]")
        if name not in classes:
            continue
        key = f"{prefix}{_name(field)}"
        title = f"[[{key}]]" if name != kind else f"[{key}]"
        sections.append(_section(title, classes[name], classes))
        _add_sections(classes, classes[name], f"{key}.", sections)


def _section(title: str, node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> str:
    rows = [
        f"| `{_name(field)}` | {_code(ast.unparse(field.annotation))} | {_default(field)} | {_cell(text)} |"
        for field, text in _fields(node)
        if ast.unparse(field.annotation) not in classes
    ]
    head = "| key | type | default | meaning |\n|---|---|---|---|\n"
    return f"\n## `{title}`\n\n{ast.get_docstring(node)}\n\n{head}" + "\n".join(rows) + "\n"


def _fields(node: ast.ClassDef) -> list[tuple[ast.AnnAssign, str]]:
    found: list[tuple[ast.AnnAssign, str]] = []
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            found.append((field, str(getattr(after.value, "value", ""))))
    return found


def _name(field: ast.AnnAssign) -> str:
    return ast.unparse(field.target)


def _default(field: ast.AnnAssign) -> str:
    if field.value is None:
        return "required"
    text = ast.unparse(field.value)
    return "empty" if text.startswith("field(") or text in {"()", "''"} else _code(text)


def _code(text: str) -> str:
    return "`" + text.replace("'", '"').replace("|", "\\|") + "`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
