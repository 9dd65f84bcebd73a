"""The files of a hosted reinforcement job (OpenAI's format), turned into a project folder.

Rows keep every key they have. Secrets never get into the project: header values become references
to environment variables. What could not be carried over is named, one thing a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from learnloop.errors import UsageError
from learnloop.formats.mapping import Mapped
from learnloop.formats.openai_rft.dataset import Dataset, Rules, label_lines, read_dataset
from learnloop.formats.openai_rft.endpoints import Address, Variables
from learnloop.formats.openai_rft.grader import Grading, read_grader
from learnloop.formats.openai_rft.job import Job, job_parts, read_job
from learnloop.formats.openai_rft.json_file import read_json
from learnloop.formats.openai_rft.settings import DATA, PROMPT, Settings
from learnloop.formats.openai_rft.tools import read_tools

_PROMPT_TEXT = "Answer what the user asks. Call tools where they help.\n"


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files of a job. Grader and tools may stand in the job's own arguments instead."""

    train: Path
    validation: Path
    grader: Path | None = None
    tools: Path | None = None
    job: Path | None = None
    group_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A project that is ready to be written, and what its user must know.

    Attributes:
        files: texts by path in the project's folder.
        mapped: what became of everything that was found.
        variables: what to set in the environment, and what each is for.
        notes: remarks on the rows.
        gradeable: whether the project has a grader of its own.
    """

    files: Mapping[str, str]
    mapped: tuple[Mapped, ...]
    variables: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    gradeable: bool

    @property
    def unmapped(self) -> tuple[Mapped, ...]:
        """Return what the project lacks."""
        return tuple(m for m in self.mapped if m.fate == "unmapped")


def read_job_files(sources: Sources) -> Imported:
    """Read the files of a job and return the project that they make.

    Raises:
        ConfigError: a file, a row or a value that cannot be used; names the place.
        UsageError: no grader is named anywhere.
    """
    variables = Variables()
    grading, mapped = _grader(sources, variables)
    tools, of_tools = _tools(sources, variables)
    rules = Rules(
        tools=tuple(t.name for t in tools),
        reference=grading.reference,
        group_by=sources.group_by,
    )
    dataset = read_dataset(sources.train, sources.validation, rules)
    job = _job(sources, dataset)
    settings = Settings(job=job.settings, tools=tuple(tools), grading=grading)
    return Imported(
        files={
            "learnloop.toml": settings.toml(),
            PROMPT: _PROMPT_TEXT,
            DATA: dataset.jsonl(),
        },
        mapped=(*of_tools, *mapped, *job.mapped),
        variables={name: tuple(uses) for name, uses in variables.uses.items()},
        notes=(
            *label_lines(dataset),
            *_tool_notes(dataset, rules),
            *_other_notes(dataset, settings),
        ),
        gradeable=not grading.missing,
    )


def _grader(sources: Sources, variables: Variables) -> tuple[Grading, list[Mapped]]:
    if sources.grader is not None:
        return read_grader(
            read_json(sources.grader), where=str(sources.grader), variables=variables
        )
    if sources.job is not None:
        own, _ = job_parts(read_json(sources.job), str(sources.job))
        if own is not None:
            return read_grader(own, where=f"{sources.job}: grader", variables=variables)
    raise UsageError("no grader is named", fix="Name its JSON file with --grader.")


def _tools(sources: Sources, variables: Variables) -> tuple[list[Address], list[Mapped]]:
    if sources.tools is not None:
        return read_tools(read_json(sources.tools), where=str(sources.tools), variables=variables)
    if sources.job is not None:
        _, own = job_parts(read_json(sources.job), str(sources.job))
        if own is not None:
            return read_tools(own, where=f"{sources.job}: tools", variables=variables)
    return [], []


def _job(sources: Sources, dataset: Dataset) -> Job:
    if sources.job is None:
        return Job()
    rows = dataset.sizes["train"]
    return read_job(read_json(sources.job), where=str(sources.job), rows=rows)


def _tool_notes(dataset: Dataset, rules: Rules) -> list[str]:
    """Warn of the classic silent failure: tools that are served and that no model is told of."""
    if not rules.tools or not dataset.without_tools:
        return []
    return [
        f"warning: {dataset.without_tools} of {len(dataset.rows)} rows have no `tools`, so the model "
        "is not told of any tool there; add the schemas to the rows, or `description` and "
        "`parameters` to [[tools]]"
    ]


def _other_notes(dataset: Dataset, settings: Settings) -> list[str]:
    notes: list[str] = []
    if dataset.without_system:
        notes.append(
            f"{dataset.without_system} rows start without a system message and get {PROMPT}; "
            "write there what the agent should know"
        )
    if settings.private:
        notes.append("private addresses are called: `network.allow_private` is set")
    return notes
