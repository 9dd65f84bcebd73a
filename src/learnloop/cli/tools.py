"""`learnloop tools`: the tools of a project, tried by hand."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio

from learnloop.cli.options import InProject
from learnloop.cli.output import printable
from learnloop.errors import EndpointError, ToolError, UsageError
from learnloop.message import ToolCall, ToolSchema
from learnloop.outbound import Retry
from learnloop.project import Project
from learnloop.tool import Tool, ToolContext, ToolOutput
from learnloop.tools.arguments import argument_error

_TRACE = "trace_" + "0" * 32
_FAILED = 1


def list_command(folder: Path | None = None, /, *, common: InProject | None = None) -> None:
    """List the tools and what they take; services and MCP servers are started for it.

    Args:
        folder: the project's folder.
        common: how to print, and which project.
    """
    common = common or InProject()
    project = Project.open(common.folder(folder))
    rows = _told_by_rows(project)
    schemas = [rows.get(s.name, s) if _is_bare(s) else s for s in anyio.run(_schemas, project)]
    if common.output.json:
        common.output.data({"tools": [_shown(schema) for schema in schemas]})
    else:
        lines = [(s.name, ", ".join(_takes(s)), s.description.partition("\n")[0]) for s in schemas]
        common.output.table(("name", "takes", "what"), lines)
    if schemas:
        common.output.next(common.command(f"tools call {schemas[0].name} '{{}}'", folder))


def call(name: str, arguments: str = "{}", /, *, common: InProject | None = None) -> int:
    """Call a tool once; the exit code is 1 when it answers with an error, 5 when it fails.

    Args:
        name: the tool.
        arguments: its arguments, a JSON object.
        common: how to print, and which project.
    """
    common = common or InProject()
    project = Project.open(common.folder(None))
    (output,) = anyio.run(_called, project, [(name, arguments)])
    if common.output.json:
        common.output.data({"output": output.text, "is_error": output.is_error})
    else:
        for line in output.text.split("\n"):
            common.output.text(printable(line.rstrip("\r").expandtabs()))
    return _FAILED if output.is_error else 0


def record(file: Path, /, *, calls: Path | None = None, common: InProject | None = None) -> None:
    """Make calls and write them to a cassette, from which `eval --replay-tools` answers.

    Args:
        file: the cassette; one that is there is added to.
        calls: JSONL with `name` and `arguments` in each line; standard input when left out.
        common: how to print, and which project.
    """
    common = common or InProject()
    project = replace(Project.open(common.folder(None)), record_tools=file)
    wanted = _read(calls)
    outputs = anyio.run(_called, project, wanted)
    errors = sum(output.is_error for output in outputs)
    if common.output.json:
        common.output.data({"cassette": str(file), "calls": len(outputs), "errors": errors})
    else:
        common.output.text(f"{len(outputs)} calls recorded, {errors} of them errors: {file}")
    common.output.next(common.command(f"eval --replay-tools {shlex.quote(str(file))}"))


def _is_bare(schema: ToolSchema) -> bool:
    """Return whether the project says of a tool no more than its name: the rows tell the model."""
    return not schema.description and not _takes(schema)


def _told_by_rows(project: Project) -> dict[str, ToolSchema]:
    """Return of each tool what the first row that offers it says; nothing where there are no data."""
    data = project.config.data
    if not (project.root / data.path).exists():
        if not data.make:
            return {}
        anyio.run(project.ensure_data)
    told: dict[str, ToolSchema] = {}
    for task in project.tasks():
        for schema in task.tools:
            told.setdefault(schema.name, schema)
    return told


async def _schemas(project: Project) -> list[ToolSchema]:
    async with project.open_parts() as parts:
        return [tool.schema for tool in parts.tools.values()]


async def _called(project: Project, calls: Sequence[tuple[str, str]]) -> list[ToolOutput]:
    """Make calls one after the other."""
    outputs: list[ToolOutput] = []
    async with project.open_parts(retry=Retry(retries=0)) as parts:
        for number, (name, arguments) in enumerate(calls):
            outputs.append(await _answer(parts.tools, name, arguments, number))
    return outputs


async def _answer(tools: Mapping[str, Tool], name: str, arguments: str, number: int) -> ToolOutput:
    if name not in tools:
        raise UsageError(f"no tool `{name}`", fix=f"There are: {', '.join(tools) or 'none'}.")
    tool = tools[name]
    if wrong := argument_error(tool.schema, arguments):
        return ToolOutput(text=wrong, is_error=True)
    asked = ToolCall(id=f"call_{number}", name=name, arguments=arguments)
    try:
        return await tool.call(asked, ToolContext(trace_id=_TRACE))
    except ToolError as fault:
        raise EndpointError(str(fault), where=f"tool `{name}`") from fault


def _read(file: Path | None) -> list[tuple[str, str]]:
    """Return the calls of a JSONL file, or of standard input."""
    try:
        text = sys.stdin.read() if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read ({error})", where=f"--calls {file}") from None
    calls: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = cast("dict[str, Any]", json.loads(line))
            arguments = entry.get("arguments", {})
            is_text = isinstance(arguments, str)
            calls.append((str(entry["name"]), arguments if is_text else json.dumps(arguments)))
        except (ValueError, KeyError, TypeError, AttributeError):
            fix = 'Write {"name": "search", "arguments": {"query": "..."}}.'
            raise UsageError("is no call", where=f"line {number}", fix=fix) from None
    return calls


def _shown(schema: ToolSchema) -> dict[str, Any]:
    return {
        "name": schema.name,
        "description": schema.description,
        "parameters": json.loads(schema.parameters_json),
    }


def _takes(schema: ToolSchema) -> list[str]:
    parameters = cast("dict[str, Any]", json.loads(schema.parameters_json))
    return list(parameters.get("properties", {}))
