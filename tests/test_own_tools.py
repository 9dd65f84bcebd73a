"""Projects whose tools are functions, MCP servers, a corpus or a cassette: rows, check, resume."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.tiny_project import CONFIG, make_project

from learnloop.check import CheckReport, check
from learnloop.project import Project
from learnloop.provenance import MCP_TOOLS, fingerprints
from learnloop.tools.mcp.snapshot import changes

SERVER = Path(__file__).resolve().parent / "mcp_server.py"
HEAD = '[project]\nname = "own"\n[model]\nref = "model"\n'
FUNCTION = '[[tools]]\nname = "double"\nfunction = "tools.py:double"\n'
MCP = f'[[mcp]]\nname = "box"\ncommand = ["{{python}}", "{SERVER}", "stdio", "-", "more"]\n'
CORPUS = '[corpus]\npath = "docs"\n'
SOURCE = '''
def double(number: int) -> int:
    """Double a number."""
    return 2 * number
'''


def project(folder: Path, config: str) -> Project:
    root = make_project(folder / "own", config=HEAD + config)
    (root / "tools.py").write_text(SOURCE)
    (root / "docs").mkdir()
    (root / "docs" / "a.txt").write_text("Sales rose.")
    (root / "docs" / "b.bin").write_bytes(b"\0")
    return Project.open(root)


def checked(opened: Project) -> CheckReport:
    return anyio.run(check, opened)


def lines(report: CheckReport, level: str) -> list[str]:
    return [f.line() for f in report.findings if f.level == level]


def test_rows_without_tools_offer_functions_mcp_tools_and_the_corpus(tmp_path: Path) -> None:
    tame = (
        'tools = ["add", "fail", "wait", "meet", "secret", "picture"]\n'  # `die` would be a fault
    )
    opened = project(tmp_path, FUNCTION + MCP + tame + CORPUS)
    report = checked(opened)
    assert lines(report, "error") == []
    names = [schema.name for schema in opened.tasks()[0].tools]
    assert names[:2] == ["double", "add"]
    assert names[-3:] == ["search", "list", "cat"]
    answering = {f.where for f in report.findings if f.what == "answers"}
    assert {"tool `double`", "tool `add`", "tool `cat`"} <= answering
    assert any("1 files skipped" in line for line in lines(report, "warning"))


def test_a_function_that_does_not_load_is_an_error_of_the_check(tmp_path: Path) -> None:
    opened = project(tmp_path, FUNCTION)
    (opened.root / "tools.py").write_text("import no_such_module_anywhere")
    report = checked(opened)
    assert report.exit_code == 4
    assert "no_such_module_anywhere" in lines(report, "error")[0]


def test_an_mcp_server_that_does_not_come_up_is_an_error_of_the_check(tmp_path: Path) -> None:
    report = checked(project(tmp_path, MCP.replace("stdio", "broken")))
    assert report.exit_code == 5
    assert "cannot open the database" in lines(report, "error")[0]


def test_what_tools_are_made_of_is_part_of_a_runs_record(tmp_path: Path) -> None:
    opened = project(tmp_path, FUNCTION + MCP + CORPUS)
    checked(opened)
    before = fingerprints(opened)
    assert before == fingerprints(opened)
    (opened.root / "tools.py").write_text(SOURCE + "\n# changed\n")
    (opened.root / "docs" / "c.txt").write_text("Costs fell.")
    (opened.root / "more").touch()
    checked(opened)
    after = fingerprints(opened)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"file tools.py", "corpus", MCP_TOOLS}
    assert changes(before[MCP_TOOLS], after[MCP_TOOLS]) == "late is new"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('[[tools]]\nname = "a"\n', "server_url` is missing"),
        (FUNCTION + 'server_url = "http://x/"\n', "stands beside `server_url`"),
        (FUNCTION.replace(":double", ""), "not a function's place"),
        ('[[mcp]]\nname = "a"\n', "command` is missing"),
        ('[[mcp]]\nname = "a"\ncommand = ["x"]\nurl = "http://x"\n', "stands beside `command`"),
        ('[[mcp]]\nname = "a"\nurl = "x"\n', "not an http address"),
        ('[corpus]\npath = "docs"\ntools = ["find"]\n', "`find`, which the corpus does not have"),
    ],
)
def test_mistakes_in_the_file_are_one_line_with_its_number(
    tmp_path: Path, config: str, words: str
) -> None:
    from learnloop.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        project(tmp_path, config)
    assert words in caught.value.line()
    assert caught.value.where.startswith("learnloop.toml:")


def test_values_of_env_are_masked_in_what_is_stored(tmp_path: Path) -> None:
    from learnloop.codec import config_json

    config = MCP + '[mcp.env]\nKEY = "sk-very-secret"\nOTHER = "${OTHER}"\n'
    text = config_json(project(tmp_path, config).config)
    assert "sk-very-secret" not in text
    assert "${OTHER}" in text


def test_http_tools_still_need_no_more_than_before(tmp_path: Path) -> None:
    opened = Project.open(make_project(tmp_path / "tiny", config=CONFIG))
    assert opened.own_schemas() == ()
