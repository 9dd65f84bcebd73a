"""Tries the tools of a project: does each answer, and what does the corpus hold?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from learnloop.errors import BoundaryError, EndpointError
from learnloop.finding import Finding, Level
from learnloop.message import ToolCall
from learnloop.peak import latency_of
from learnloop.project import Project
from learnloop.task import Task
from learnloop.tool import Tool, ToolContext
from learnloop.tools.cassette import ReplayedTool
from learnloop.tools.http import HttpTool
from learnloop.tools.opening import open_corpus

TRACE = "trace_" + "0" * 32
"""The trace id of calls that belong to no rollout."""
_UNKNOWN = "learnloop_check_no_such_tool"
_REFUSALS = (401, 403)


def corpus_findings(project: Project) -> Iterator[Finding]:
    """Tell how many documents the corpus has, and which files it had to leave out."""
    config = project.config.corpus
    if not config.path or project.config.tools_replay.cassette:
        return
    corpus = open_corpus(config, project.root, project.prepare_state())
    what = f"corpus of {len(corpus.paths)} documents"
    if corpus.skipped:
        what += f"; {len(corpus.skipped)} files skipped, no text or unreadable, such as "
        what += f"`{corpus.skipped[0]}`"
    level: Level = "warning" if corpus.skipped else "ok"
    yield Finding(level=level, what=what, where=config.path)


async def tool_finding(tool: Tool, tasks: Sequence[Task], latencies: dict[str, float]) -> Finding:
    """Call a tool without arguments: any answer that is no fault shows that it is there."""
    where = f"tool `{tool.schema.name}`"
    if isinstance(tool, ReplayedTool):
        return Finding(level="ok", what="answers from a cassette", where=where)
    item: Mapping[str, object] = tasks[0].item if tasks else {}
    context = ToolContext(trace_id=TRACE, item=item)
    try:
        if isinstance(tool, HttpTool):
            return await _served(tool, context, latencies)
        await tool.call(_call(tool.schema.name), context)
    except BoundaryError as error:
        return Finding(
            level="error",
            what=str(error).removeprefix(f"tool {tool.schema.name}: "),
            where=where,
            fix=_mend(tool),
            exit_code=EndpointError.exit_code,
        )
    return Finding(level="ok", what="answers", where=where)


async def _served(tool: HttpTool, context: ToolContext, latencies: dict[str, float]) -> Finding:
    """Call a tool over HTTP, judge whether its server knows it, and time it.

    Raises:
        ToolError: it does not answer, or with a fault.
    """
    name, where = tool.schema.name, f"tool `{tool.schema.name}`"
    answer = await tool.call(_call(name), context)
    other = await tool.call(_call(_UNKNOWN), context) if answer.is_error else answer
    latencies[name] = await latency_of(tool, _call(name), context)
    if answer.status in _REFUSALS:
        return Finding(
            level="error",
            what=f"its server refused our credentials (HTTP {answer.status}): {answer.text[:120]}",
            where=where,
            fix="Look at `headers` of the tool and the variables that they name.",
            exit_code=EndpointError.exit_code,
        )
    # A server that picks tools by name answers a wrong name as it answers a name nobody has.
    same = answer.text.replace(name, "*") == other.text.replace(_UNKNOWN, "*")
    if answer.is_error and ((_UNKNOWN in other.text and same) or _is_no_page(answer.text)):
        return Finding(
            level="error",
            what=f"its server does not know this tool: {answer.text[:120]}",
            where=where,
            fix="Names must match exactly: compare `name` and `server_url` with the server.",
            exit_code=EndpointError.exit_code,
        )
    return Finding(level="ok", what="answers", where=where)


def _mend(tool: Tool) -> str:
    if isinstance(tool, HttpTool):
        return "Start its server, or mend `server_url`; a mistaken call must be a 4xx, not a 5xx."
    return "A mistaken call must be an error that the model is shown, not a fault."


def _call(name: str) -> ToolCall:
    return ToolCall(id=f"call_check_{name}", name=name, arguments="{}")


def _is_no_page(text: str) -> bool:
    """Return whether this is how web servers word that no page has this address."""
    words = text.strip().lower().strip('{}" ')
    return words in {"not found", "http 404 not found", 'detail":"not found'}
