"""A program as guards read it: its syntax tree, what its names stand for, and which of it can run.

Names are followed through imports and `getattr`, and constant texts are put together, so that hiding a word
in two halves hides nothing. Code that cannot run (`if False:`) is not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

SHOWN = 160
"""Most characters of a place that are shown."""
_LONGEST = 200_000


@dataclass(kw_only=True)
class Program:
    """A program as it is looked at: its tree, and what its names stand for."""

    tree: ast.Module
    source: str
    names: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def read(cls, source: str) -> Program | None:
        """Return a program; None for what is no Python."""
        if len(source) > _LONGEST:
            return None
        try:
            made = cls(tree=ast.parse(source), source=source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        for node in ast.walk(made.tree):
            if isinstance(node, ast.Import):
                made.names |= {
                    a.asname or a.name.partition(".")[0]: a.name
                    if a.asname
                    else a.name.partition(".")[0]
                    for a in node.names
                }
            elif isinstance(node, ast.ImportFrom) and node.module:
                made.names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        return made

    def dotted(self, node: ast.AST) -> str:
        """Return what a name stands for, such as `os._exit`; nothing for what is no name."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            inner = self.dotted(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        if isinstance(node, ast.Call):
            return self._looked_up(node)
        return ""

    def _looked_up(self, node: ast.Call) -> str:
        """Return what `getattr(os, "_exit")`, `__import__("os")` and their like stand for."""
        function = self.dotted(node.func) if not isinstance(node.func, ast.Call) else ""
        texts = [constant(a) for a in node.args]
        if function == "getattr" and len(node.args) >= 2 and texts[1]:
            return f"{self.dotted(node.args[0])}.{texts[1]}"
        if function in ("__import__", "importlib.import_module") and texts and texts[0]:
            return texts[0]
        return ""

    def is_module(self, node: ast.AST) -> bool:
        """Return whether a name stands for something that was imported."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Call):
            return bool(self._looked_up(root))
        return isinstance(root, ast.Name) and root.id in self.names

    def text(self, node: ast.AST) -> str:
        """Return the source of a place."""
        return (ast.get_source_segment(self.source, cast("Any", node)) or "")[:SHOWN]


def constant(node: ast.AST) -> str:
    """Return a text that is known without running anything; nothing where it is not."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant(node.left), constant(node.right)
        return left + right if left and right else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            constant(getattr(v, "value", v)) if isinstance(v, ast.FormattedValue) else constant(v)
            for v in node.values
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _joined(node, node.func)
    return ""


def _joined(node: ast.Call, function: ast.Attribute) -> str:
    if function.attr != "join" or len(node.args) != 1:
        return ""
    listed = node.args[0]
    if not isinstance(listed, ast.List | ast.Tuple):
        return ""
    parts = [constant(e) for e in listed.elts]
    return constant(function.value).join(parts) if all(parts) else ""


def live(node: ast.AST, *, inside: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield every place that can run, with the function it is in; `__main__` for code of scripts only."""
    yield node, inside
    if isinstance(node, ast.If):
        if isinstance(node.test, ast.Constant) and not node.test.value:
            for other in node.orelse:
                yield from live(other, inside=inside)
            return
        if "__name__" in ast.dump(node.test):
            for child in ast.iter_child_nodes(node):
                yield from live(child, inside="__main__")
            return
    name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else inside
    for child in ast.iter_child_nodes(node):
        yield from live(child, inside=name)
