"""Where a run comes from: versions, hashes and the command that repeats it; no paths, no names."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from learnloop.codec import canonical_json, config_leaves, schema_to_chat
from learnloop.config import MASK
from learnloop.errors import ConfigError
from learnloop.grading import grader_version
from learnloop.message import ToolSchema
from learnloop.models.manifest import file_sha256
from learnloop.project import Project
from learnloop.task import Split, Task
from learnloop.tools.corpus.embedding import embedding_version
from learnloop.tools.mcp.snapshot import fingerprint, saved_schemas
from learnloop.tools.opening import open_corpus

MCP_TOOLS = "tools of MCP servers"
_PACKAGES = ("learnloop", "torch", "transformers")
_SHOWN = 16
"""Hex digits of a hash that are kept."""
_ENVIRONMENT = "LEARNLOOP_"


def describe(project: Project, tasks: Iterable[Task]) -> dict[str, str]:
    """Return what a run is made of, in words: software, machine, and hashes of its inputs."""
    made = {name: _version(name) for name in _PACKAGES}
    made |= {"python": platform.python_version(), "git": _git(project.root)}
    made |= {"machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"}
    made |= fingerprints(project)
    made |= {"tool schemas": _schemas(tasks)}
    return {name: words for name, words in made.items() if words}


def fingerprints(project: Project) -> dict[str, str]:
    """Return hashes of what decides a run's results beside its configuration."""
    config = project.config
    found = {
        "dataset": dataset_fingerprint(project),
        "system prompt": _fingerprint(project, config.agent.system_prompt),
        "grader": grader_version(project.config, project.root),
    }
    if config.warmup.path:
        found["demonstrations"] = _fingerprint(project, config.warmup.path)
    found |= _tool_fingerprints(project)
    weights = [file_sha256(path) for path in sorted(project.model_folder().glob("*.safetensors"))]
    found["model"] = f"{_public_ref(config.model.ref)}, sha256 {_digest(weights)}"
    return found


def _tool_fingerprints(project: Project) -> dict[str, str]:
    """Return hashes of the tools that run inside or beside learnloop."""
    config, found = project.config, dict[str, str]()
    if config.tools_replay.cassette:
        return {"cassette": _fingerprint(project, config.tools_replay.cassette)}
    files = dict.fromkeys(t.function.rpartition(":")[0] for t in config.tools if t.function)
    for name in (name for name in files if name.endswith(".py")):
        found[f"file {name}"] = _fingerprint(project, name)
    if config.mcp:
        found[MCP_TOOLS] = fingerprint(saved_schemas(project.state_dir, config.mcp))
    if config.corpus.path:
        corpus = open_corpus(config.corpus, project.root, project.prepare_state())
        found["corpus"] = corpus.fingerprint()
        if config.corpus.search != "bm25":
            found["embedding model"] = embedding_version()
    return found


def dataset_fingerprint(project: Project) -> str:
    """Return the hash of the project's dataset file.

    Raises:
        ConfigError: it is missing.
    """
    return _fingerprint(project, project.config.data.path)


def task_set_hash(tasks: Iterable[Task], split: Split) -> str:
    """Return a name for the tasks of a split: equal rows, equal name."""
    rows = sorted(json.dumps(dict(t.item), sort_keys=True) for t in tasks if t.split == split)
    return _digest(rows)


def given_settings(project: Project) -> dict[str, object]:
    """Return the settings that came from flags or the environment and not from the file.

    Secrets are left out: they have to be given anew.
    """
    leaves = config_leaves(project.config)
    keys = [key for key, origin in project.origins.items() if _is_given(origin)]
    kept = (k for k in keys if k in leaves and "headers" not in k and MASK not in str(leaves[k]))
    return {key: leaves[key] for key in kept}


def environment_keys(project: Project) -> set[str]:
    """Return the settings that the environment makes."""
    return {k for k, origin in project.origins.items() if origin.startswith(_ENVIRONMENT)}


def repeating_command(project: Project, verb: str, own: Sequence[str] = ()) -> str:
    """Return the command line that repeats a run in its project's folder.

    Args:
        project: the project with the settings of the run.
        verb: what was run.
        own: words of the verb that are no settings.

    Texts from the environment may be secrets: they stay there, and only their variable is named.
    """
    words: list[str] = []
    variables: list[str] = []
    leaves = config_leaves(project.config)
    for key, origin in project.origins.items():
        value = leaves.get(key)
        if origin.startswith(_ENVIRONMENT):
            is_plain = isinstance(value, int | float)
            variables.append(
                f"{origin}={json.dumps(value)}" if is_plain else f'{origin}="${origin}"'
            )
        elif origin.startswith("--"):
            text = value if isinstance(value, str) else json.dumps(value)
            words.append(f"{origin} {shlex.quote(text)}")
    variables = list(dict.fromkeys(variables))  # a table has several keys of one variable
    return " ".join([*variables, "learnloop", verb, *words, *map(shlex.quote, own)])


def words_of(meta: Mapping[str, object]) -> dict[str, str]:
    """Return the part of a run's stored facts that reports show."""
    return {name: value for name, value in meta.items() if isinstance(value, str)}


def _fingerprint(project: Project, name: str) -> str:
    """Return the hash of a file that a run read.

    Raises:
        ConfigError: it is not there any more.
    """
    try:
        return f"sha256 {file_sha256(project.root / name)[:_SHOWN]}"
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise ConfigError(what, where=name, fix="Put back the file that the run used.") from None


def _is_given(origin: str) -> bool:
    return origin.startswith(("--", _ENVIRONMENT))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _git(folder: Path) -> str:
    """Return the commit of the project's repository; empty where there is none."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _schemas(tasks: Iterable[Task]) -> str:
    offered: dict[str, ToolSchema] = {s.name: s for task in tasks for s in task.tools}
    texts = [canonical_json(schema_to_chat(offered[name])) for name in sorted(offered)]
    return f"sha256 {_digest(texts)}" if texts else ""


def _digest(texts: Iterable[str]) -> str:
    joined = hashlib.sha256()
    for text in texts:
        joined.update(len(text).to_bytes(8, "big") + text.encode())
    return joined.hexdigest()[:_SHOWN]


def _public_ref(ref: str) -> str:
    """Return a model's name without the folders above it."""
    return ref if ref.startswith("hf:") else Path(ref).name
