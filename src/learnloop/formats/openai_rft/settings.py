"""The text of a new project's `learnloop.toml`, with a comment where a reader needs one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from learnloop.formats.openai_rft.endpoints import Address, is_private
from learnloop.formats.openai_rft.grader import Grading

PROMPT = "prompts/system.md"
DATA = "data/tasks.jsonl"

_HEAD = """\
# Written by `learnloop import openai-rft` from the files of a hosted reinforcement job.
# Every value may be changed; what is left out has the default that `learnloop config show` prints.
"""
_NO_GRADER = """\
# The job's grader has no equal here, so this section does not grade as it did. Serve the grader at
# an address of yours and write:  type = "endpoint"  and  url = "https://..."
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What goes into `learnloop.toml`: settings of the job by dotted name, tools and the grader."""

    job: Mapping[str, Any]
    tools: tuple[Address, ...]
    grading: Grading

    @property
    def private(self) -> tuple[str, ...]:
        """Return the addresses that are on this machine or in a private network."""
        grader = [self.grading.address] if self.grading.address else []
        return tuple(a.url for a in (*self.tools, *grader) if is_private(a.url))

    def toml(self) -> str:
        """Return the text of the file."""
        parts = [_HEAD, self._project(), *self._tools(), self._data(), self._grader()]
        parts += [self._train(), self._network()]
        return "\n".join(part for part in parts if part)

    def _project(self) -> str:
        lines = ["[project]", f"name = {_quoted(str(self.job.get('project.name', 'imported')))}"]
        lines += ["", "[model]"]
        lines += ["# Small, and enough to see the loop work; name your own, such as hf:ORG/NAME."]
        lines += ['ref = "smollm2-135m"', "", "[agent]"]
        lines += ["# Goes in front of rows that start without a system message."]
        lines += [f"system_prompt = {_quoted(PROMPT)}", *self._section("agent")]
        return "\n".join(lines) + "\n"

    def _tools(self) -> Iterator[str]:
        if self.tools:
            yield "# Names and addresses; what the model is told of a tool stands in every row's `tools`.\n"
        for tool in self.tools:
            lines = ["[[tools]]", f"name = {_quoted(tool.name)}"]
            lines += [f"server_url = {_quoted(tool.url)}", *_headers(tool)]
            yield "\n".join(lines) + "\n"

    def _data(self) -> str:
        return (
            "[data]\n# Training rows are in split train; validation rows were divided by group into\n"
            f"# screen, confirm and test.\npath = {_quoted(DATA)}\n"
        )

    def _grader(self) -> str:
        grading = self.grading
        lines = [] if not grading.missing else [_NO_GRADER.rstrip()]
        lines.append("[grader]")
        if grading.address:
            lines += ['type = "endpoint"', f"url = {_quoted(grading.address.url)}"]
            lines += _headers(grading.address)
            limits = {"pass_threshold": grading.pass_threshold, "rate_limit": grading.rate_limit}
            lines += [f"{key} = {json.dumps(value)}" for key, value in limits.items() if value]
        elif grading.reference:
            lines += ['type = "string_check"', f"reference = {_quoted(grading.reference)}"]
            lines += [f"operation = {_quoted(grading.operation)}"]
        else:
            # Left out, the default grader would train towards what nobody chose.
            lines.append('type = "todo"')
        return "\n".join(lines) + "\n"

    def _train(self) -> str:
        text = "".join(
            f"\n[{name}]\n" + "\n".join(lines) + "\n" for name, lines in self._sections()
        )
        return text.removeprefix("\n")

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        for name in ("train", "train.rft"):
            if lines := self._section(name):
                yield name, lines

    def _section(self, name: str) -> list[str]:
        """Return the job's settings of one section as lines."""
        found = {k.removeprefix(f"{name}."): v for k, v in self.job.items() if _in(k, name)}
        return [f"{key} = {json.dumps(value)}" for key, value in found.items()]

    def _network(self) -> str:
        if not self.private:
            return ""
        return (
            "[network]\n# Some addresses above are on this machine or in a private network.\n"
            "allow_private = true\n"
        )


def _in(key: str, section: str) -> bool:
    return key.rpartition(".")[0] == section


def _headers(address: Address) -> list[str]:
    if not address.headers:
        return []
    pairs = ", ".join(f"{_quoted(k)} = {_quoted(v)}" for k, v in address.headers.items())
    return [
        "# Values come from the environment; secrets are never written here.",
        f"headers = {{ {pairs} }}",
    ]


def _quoted(text: str) -> str:
    """Return a TOML string; its escapes are those of JSON, apart from DEL and half surrogates."""
    plain = text.encode("utf-8", "replace").decode()
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007F")
