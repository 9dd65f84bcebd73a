"""Promises about the tree as a whole: imports stay light, fields are explained, examples are whole."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from learnloop import config

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "learnloop"
HEAVY = {
    "torch", "transformers", "peft", "safetensors", "huggingface_hub", "pydantic", "sqlalchemy",
    "alembic", "scipy", "numpy", "jsonschema", "httpx2", "starlette", "uvicorn", "mcp", "aiolimiter",
    "jinja2",
}  # fmt: skip
CONFIG_CLASSES = [
    kind
    for _, kind in inspect.getmembers(config, inspect.isclass)
    if dataclasses.is_dataclass(kind) and kind.__module__.startswith(config.__name__)
]
TOML_FILES = sorted(
    path
    for folder in ("examples", "docs", "bench")
    for path in (ROOT / folder).rglob("*.toml")
    if ".learnloop" not in path.parts
)
MARKDOWN_FILES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after running `code`."""
    show = "import sys; print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stderr.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import learnloop") & HEAVY == set()


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from learnloop.cli import main
sys.argv = ["learnloop", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert loaded_by(code) & HEAVY == set()


@pytest.mark.parametrize("kind", CONFIG_CLASSES, ids=lambda kind: kind.__name__)
def test_every_config_field_has_a_sentence_under_it(kind: type) -> None:
    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    assert ast.get_docstring(node), kind.__name__
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            name = f"{kind.__name__}.{ast.unparse(field.target)}"
            text = after.value if isinstance(after, ast.Expr) else None
            assert isinstance(text, ast.Constant), f"{name} has no sentence"
            assert re.fullmatch(r"(?s)\S.*\.", str(text.value)), f"{name}: {text.value!r}"


@pytest.mark.parametrize("path", TOML_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_toml_in_examples_and_docs_parses(path: Path) -> None:
    assert tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_every_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "no docstring"
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is longer than 60 lines"


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "common", "base", "helpers", "managers", "types"}
    assert [path for path in PACKAGE.rglob("*") if path.stem in vague] == []


@pytest.mark.parametrize("path", MARKDOWN_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_in_the_documentation_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    local = [link.partition("#")[0] for link in links if "://" not in link]
    assert [link for link in local if link and not (path.parent / link).exists()] == []


def test_the_configuration_reference_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *extras["local"], *extras["dev"], *extras["semantic"]]
    pinned = set(re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text()))
    assert {re.split(r"[<>=\[]", line)[0] for line in named} - pinned == set()


def test_the_wheel_carries_the_examples_as_templates_without_what_they_generate(
    tmp_path: Path,
) -> None:
    tree = tmp_path / "tree"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        tree.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    made = ("data", ".learnloop", "__pycache__", ".pytest_cache", ".ruff_cache")
    for name in ("src", "examples"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns(*made))
    examples = sorted((tree / "examples").glob("*/learnloop.toml"))
    for example, folder in itertools.product(examples, made):
        (example.parent / folder).mkdir()
        (example.parent / folder / "made.txt").write_text("made by running the example")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, env=os.environ)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "learnloop/config/__init__.py" in names
    assert "learnloop/py.typed" in names
    for migration in (PACKAGE / "store" / "migrations").rglob("*.py"):
        assert f"learnloop/{migration.relative_to(PACKAGE).as_posix()}" in names
    for example in examples:
        assert f"learnloop/templates/{example.parent.name}/learnloop.toml" in names
    assert [name for name in names if set(made) & set(Path(name).parts)] == []
