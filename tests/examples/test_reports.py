"""The example project `examples/reports`: its generator and its tool server."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

PROJECT = Path(__file__).parents[2] / "examples" / "reports"
FILES = ("reports.jsonl", "tasks.jsonl", "demos.jsonl")
KINDS = {"lookup", "indirect", "ratio", "difference", "highest", "together"}
ITEM = r"(revenue|operating profit|net income)"

Row = dict[str, Any]
Table = dict[str, dict[int, int]]
Cell = tuple[str, str, int]


def generate(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "corpus.py", "--out", str(folder), *options]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(text: str) -> Table:
    """Read a report's table as a stranger would: a name, then cells with their year."""
    lines = re.findall(r"^([a-z ]+?)((?: \d{4}:\d+)+)$", text, re.MULTILINE)
    return {
        name: {int(y): int(v) for y, v in re.findall(r"(\d{4}):(\d+)", cells)}
        for name, cells in lines
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports") / "data"
    done = generate(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def tasks(data: Path) -> list[Row]:
    return rows(data / "tasks.jsonl")


@pytest.fixture(scope="module")
def texts(data: Path) -> dict[str, str]:
    return {row["path"]: row["text"] for row in rows(data / "reports.jsonl")}


@pytest.fixture(scope="module")
def tables(texts: dict[str, str]) -> dict[str, Table]:
    return {path: table(text) for path, text in texts.items()}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    sys.path.insert(0, str(PROJECT))
    yield importlib.import_module("server")
    sys.path.remove(str(PROJECT))


@pytest.fixture
def db(server: Any, data: Path) -> Iterator[sqlite3.Connection]:
    connection = server.open_index(data / "reports.sqlite")
    yield connection
    connection.close()


@contextlib.contextmanager
def serving(data: Path, *options: str) -> Generator[httpx2.Client]:
    """Start the real server as learnloop starts it, and stop it at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "server.py", "--port", str(port), "--data", str(data), *options]
    with (
        subprocess.Popen(command, cwd=PROJECT) as process,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
    ):
        try:
            wait_until_ready(http, process)
            yield http
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[httpx2.Client]:
    with serving(data) as http:
        yield http


def wait_until_ready(http: httpx2.Client, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            assert http.get("/health").status_code == 200
            return
        except httpx2.ConnectError:
            time.sleep(0.05)
    pytest.fail("the tool server did not become ready")


def post(http: httpx2.Client, tool: str, arguments: object) -> tuple[int, str]:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    body = {**call, "arguments": text, "item": {"id": "row"}, "trace_id": "trace_" + "0" * 32}
    reply = http.post(f"/{tool}", json=body)
    answer = reply.json()
    assert answer["type"] == "function_call_output"
    assert (answer["id"], answer["call_id"]) == ("fc_1", "call_1")
    return reply.status_code, answer["output"]


# --- the generator -------------------------------------------------------------------------------


def test_the_same_seed_writes_the_same_bytes(data: Path, tmp_path: Path) -> None:
    assert generate(tmp_path, "--seed", "7").returncode == 0
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (data / name).read_bytes()


def test_another_seed_writes_another_world(data: Path, tmp_path: Path) -> None:
    assert generate(tmp_path, "--seed", "8").returncode == 0
    for name in FILES:
        assert (tmp_path / name).read_bytes() != (data / name).read_bytes()


def test_nothing_unfinished_is_left_in_the_folder(data: Path) -> None:
    assert {p.name for p in data.iterdir()} == {*FILES, "reports.sqlite"}


def test_a_folder_that_cannot_be_made_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = generate(tmp_path / "file" / "data")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert generate(tmp_path, "--demos", "201").returncode == 2


def test_there_are_2400_reports_and_a_task_of_each_kind_for_each_company(
    texts: dict[str, str], tasks: list[Row]
) -> None:
    assert len(texts) == 2400
    assert len({path.partition("/")[0] for path in texts}) == 600
    assert Counter(t["kind"] for t in tasks) == dict.fromkeys(KINDS, 600)
    assert len({t["id"] for t in tasks}) == len(tasks)


def test_groups_are_pairs_of_companies_and_do_not_cross_splits(tasks: list[Row]) -> None:
    splits: dict[str, set[str]] = defaultdict(set)
    companies: dict[str, set[str]] = defaultdict(set)
    for task in tasks:
        splits[task["group"]].add(task["split"])
        companies[task["group"]] |= {path.partition("/")[0] for path in task["documents"]}
    assert all(len(names) == 1 for names in splits.values())
    assert all(len(pair) == 2 for pair in companies.values())
    assert len({name for pair in companies.values() for name in pair}) == 2 * len(companies)
    shares = {k: n / len(tasks) for k, n in Counter(t["split"] for t in tasks).items()}
    wanted = {"train": 0.35, "screen": 0.15, "confirm": 0.25, "test": 0.25}
    assert shares == pytest.approx(wanted, abs=0.01)


def test_no_series_has_two_equal_figures(tables: dict[str, Table]) -> None:
    for path, rows_ in tables.items():
        assert set(rows_) == {"revenue", "operating profit", "net income"}, path
        assert all(len(set(cells.values())) == len(cells) for cells in rows_.values()), path


def test_reports_carry_up_to_three_years_newest_first(tables: dict[str, Table]) -> None:
    for path, rows_ in tables.items():
        year = int(path[-4:])
        wanted = list(range(year, max(2019, year - 3), -1))
        assert all(list(cells) == wanted for cells in rows_.values()), path


def restatements(tables: dict[str, Table]) -> dict[Cell, tuple[int, int]]:
    """Return (company, item, year) with figures before and after, by comparing two reports."""
    found: dict[Cell, tuple[int, int]] = {}
    for path, rows_ in tables.items():
        slug, year = path.split("/")[0], int(path[-4:])
        if later := tables.get(f"{slug}/{year + 1}"):
            for item, cells in rows_.items():
                if cells[year] != later[item][year]:
                    found[slug, item, year] = (cells[year], later[item][year])
    return found


def test_about_six_percent_of_figures_are_restated_once_and_noted(
    texts: dict[str, str], tables: dict[str, Table]
) -> None:
    changed = restatements(tables)
    assert 0.05 < len(changed) / (600 * 4 * 3) < 0.07
    for (slug, item, year), (old, new) in changed.items():
        for later in range(year + 1, min(2023, year + 2) + 1):
            path = f"{slug}/{later}"
            assert tables[path][item][year] == new
            assert f"{year} {item} restated from {old}" in texts[path].splitlines()
    notes = sum(text.count("restated from") for text in texts.values())
    assert notes == sum(1 + (year < 2022) for _, _, year in changed)


def solve(task: Row, tables: dict[str, Table]) -> tuple[float, list[Cell]]:
    """Answer a question from its words and the tables it is given.

    Returns the answer and the figures it took without naming their version.
    """
    text, kind = task["messages"][0]["content"], task["kind"]
    items = [name.replace("number of ", "") for name in re.findall(ITEM, text)]
    years = sorted({int(y) for y in re.findall(r"\b20\d\d\b", text)})
    slug = task["documents"][0].split("/")[0]
    if "as restated" in text:
        return tables[f"{slug}/{years[1]}"][items[0]][years[0]], []
    used: list[Cell] = {
        "ratio": lambda: [(slug, name, years[0]) for name in items[:2]],
        "difference": lambda: [(slug, items[0], years[1]), (slug, items[0], years[0])],
        "highest": lambda: [(slug, items[0], y) for y in range(years[0], years[1] + 1)],
        "together": lambda: [(one, items[0], years[0]) for one in named(text)],
    }.get(kind, lambda: [(slug, items[0], years[0])])()
    figures = [tables[f"{one}/{year}"][name][year] for one, name, year in used]
    answer: float = {
        "ratio": lambda: figures[0] / figures[1],
        "highest": lambda: used[figures.index(max(figures))][2],
        "difference": lambda: figures[0] - figures[1],
        "together": lambda: figures[0] + figures[1],
    }.get(kind, lambda: figures[0])()
    return answer, [] if "as first" in text else used


def named(text: str) -> list[str]:
    """Return the two companies of a question."""
    names = re.findall(r"[A-Z][a-z]+ [A-Z][a-z]+", text)[:2]
    return [name.lower().replace(" ", "-") for name in names]


def test_every_expected_answer_follows_from_the_question_and_the_listed_documents(
    tasks: list[Row], tables: dict[str, Table]
) -> None:
    for task in tasks:
        visible = {path: tables[path] for path in task["documents"]}  # nothing else is looked at
        answer, _ = solve(task, visible)
        tolerance = task.get("rel_tol", 0.0) * abs(answer)
        assert abs(answer - task["answer"]) <= tolerance, task


def test_the_highest_year_leads_clearly(tasks: list[Row], tables: dict[str, Table]) -> None:
    leads: list[float] = []
    for task in (t for t in tasks if t["kind"] == "highest"):
        _, cells = solve(task, {path: tables[path] for path in task["documents"]})
        assert len(cells) == 3
        figures = sorted(tables[f"{slug}/{year}"][item][year] for slug, item, year in cells)
        leads.append(figures[-1] / figures[-2] - 1)
    assert sum(lead < 0.1 for lead in leads) / len(leads) < 0.1


def test_rounding_of_a_ratio_is_far_below_its_tolerance(
    tasks: list[Row], tables: dict[str, Table]
) -> None:
    for task in (t for t in tasks if t["kind"] == "ratio"):
        exact, _ = solve(task, tables)
        assert task["answer"] == round(exact, 4)
        assert abs(task["answer"] - exact) <= 0.5 * task["rel_tol"] * exact


def test_only_questions_that_name_a_version_touch_a_restated_figure(
    tasks: list[Row], tables: dict[str, Table]
) -> None:
    changed = restatements(tables)
    for task in tasks:
        _, used = solve(task, tables)
        assert not changed.keys() & set(used), task


def test_a_share_of_lookups_asks_for_a_named_version_and_the_versions_differ(
    tasks: list[Row], tables: dict[str, Table]
) -> None:
    changed = restatements(tables)
    explicit = 0
    for task in tasks:
        text = task["messages"][0]["content"]
        if "as first" in text or "as restated" in text:
            explicit += 1
            item = re.findall(ITEM, text)[0].replace("number of ", "")
            year = min(int(y) for y in re.findall(r"\b20\d\d\b", text))
            slug = task["documents"][0].split("/")[0]
            old, new = changed[slug, item, year]
            assert task["answer"] == (new if "as restated" in text else old)
    assert 0.15 < explicit / 1200 < 0.35


def test_an_indirect_question_names_no_company_and_fits_only_one(
    tasks: list[Row], texts: dict[str, str]
) -> None:
    for task in (t for t in tasks if t["kind"] == "indirect"):
        slug = task["documents"][0].split("/")[0]
        assert slug.replace("-", " ") not in task["messages"][0]["content"].lower()
    described = [text.splitlines()[1] for path, text in texts.items() if path.endswith("2021")]
    leads = [re.sub(r"[^.:]*\b(target|Guidance|sales)\b[^.]*\.", "", line) for line in described]
    words = [frozenset(re.findall(r"[A-Z]?[a-z]{3,}", lead)) for lead in leads]
    assert len(set(words)) == len(words)


# --- demonstrations ------------------------------------------------------------------------------


def calls_of(demo: Row) -> list[tuple[str, str, str]]:
    """Return (tool, argument, output) of each call."""
    made = [m["tool_calls"][0] for m in demo["messages"] if m.get("tool_calls")]
    outputs = {m["tool_call_id"]: m["content"] for m in demo["messages"] if m["role"] == "tool"}
    return [
        (
            c["function"]["name"],
            next(iter(json.loads(c["function"]["arguments"]).values())),
            outputs[c["id"]],
        )
        for c in made
    ]


def test_demonstrations_are_few_and_of_training_tasks_and_any_first_ones_hold_every_kind(
    data: Path, tasks: list[Row]
) -> None:
    by_id = {t["id"]: t for t in tasks}
    demos = rows(data / "demos.jsonl")
    assert len(demos) <= 200
    assert len({d["task_id"] for d in demos}) == len(demos)
    assert all(by_id[d["task_id"]]["split"] == "train" for d in demos)
    for first in (60, len(demos)):
        counts = Counter(by_id[d["task_id"]]["kind"] for d in demos[:first])
        assert counts.keys() == KINDS
        assert min(counts.values()) >= first / 20


def last_of_each_company(paths: list[str]) -> list[str]:
    return list({path.partition("/")[0]: path for path in paths}.values())


def test_some_demonstrations_open_the_last_report_only(data: Path, tasks: list[Row]) -> None:
    by_id = {t["id"]: t for t in tasks}
    opened = [
        len(by_id[demo["task_id"]]["documents"]) - sum(c[0] == "cat" for c in calls_of(demo))
        for demo in rows(data / "demos.jsonl")
        if by_id[demo["task_id"]]["kind"] in {"difference", "highest"}
    ]
    assert 0.05 < sum(left > 0 for left in opened) / len(opened) < 0.4


def test_a_demonstration_wastes_no_call_and_ends_with_the_answer(
    data: Path, tasks: list[Row]
) -> None:
    by_id = {t["id"]: t for t in tasks}
    for demo in rows(data / "demos.jsonl"):
        task, calls = by_id[demo["task_id"]], calls_of(demo)
        assert demo["messages"][0] == task["messages"][0]
        assert len({call[:2] for call in calls}) == len(calls)
        opened = [a for tool, a, _ in calls if tool == "cat"]
        assert opened in (task["documents"], last_of_each_company(task["documents"]))
        read = " ".join(output for tool, _, output in calls if tool == "cat")
        used = [n for tool, a, _ in calls if tool == "calc" for n in re.findall(r"[0-9]+", a)]
        assert all(re.search(rf"(:|from ){number}\b", read) for number in used)
        assert demo["messages"][-1]["content"] == f"Answer: {task['answer']}"
        if task["kind"] == "indirect":
            assert calls[0][0] == "search"


def test_tool_outputs_in_demonstrations_are_what_the_tools_return(
    data: Path, server: Any, db: sqlite3.Connection
) -> None:
    for demo in rows(data / "demos.jsonl"):
        for tool, argument, output in calls_of(demo):
            assert server.answer(db, tool, json.dumps({server.TOOLS[tool][0]: argument})) == output


def test_demonstrations_find_documents_in_several_ways(data: Path) -> None:
    first = Counter(calls_of(demo)[0][0] for demo in rows(data / "demos.jsonl"))
    assert first["search"] > first["cat"] > 10
    assert first["list"] > 10


# --- the tools -----------------------------------------------------------------------------------


def test_search_finds_at_least_95_percent_of_reports_by_name_and_by_description(
    server: Any, db: sqlite3.Connection
) -> None:
    corpus = importlib.import_module("corpus")
    hits = {"name": 0, "description": 0}
    companies = corpus.make_companies(7)
    for place, company in enumerate(companies):
        year = corpus.YEARS[place % 4]
        described = f"{company.trade} {company.town}"
        for key, who in (("name", company.name), ("description", described)):
            found = server.search(db, f"{who} {year}")
            hits[key] += found.startswith(f"{company.path(year)} | ")
    assert min(hits.values()) >= 0.95 * len(companies), hits


def test_a_search_result_is_one_short_line(
    tasks: list[Row], server: Any, db: sqlite3.Connection
) -> None:
    for task in tasks[::12]:
        found = server.search(db, task["messages"][0]["content"])
        assert "\n" not in found
        assert len(found.split()) <= 20


@pytest.mark.parametrize(
    "query",
    [
        '"',
        'alder" OR 1',
        "NEAR(a b, 2)",
        "title:alder",
        "* ^ - + ( ) { }",
        "alder AND",
        "'; DROP TABLE reports; --",
        "\x00alder",
        "²³ ½ 漢字",
        "alder " * 10_000,
        "NOT",
        "",
        "   ",
    ],
)
def test_no_query_is_a_syntax_error(
    query: str, server: Any, db: sqlite3.Connection, texts: dict[str, str]
) -> None:
    with contextlib.suppress(server.AgentMistake):
        assert server.search(db, query).split(" | ")[0] in texts


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("482 - 455", "27"),
        ("82/482", "0.1701"),
        ("-3 * (2 + .5)", "-7.5"),
        ("6 / 3", "2"),
        ("0.1 + 0.2", "0.3"),
        ("-1 / 100000", "0"),
        ("((((1))))", "1"),
    ],
)
def test_calc_gives_four_decimals_without_trailing_zeros(
    expression: str, value: str, server: Any
) -> None:
    assert server.calc(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "1 / 0",
        "1 / (2 - 2)",
        "9 ** 9 ** 9",
        "7 // 2",
        "__import__('os').system('true')",
        "open('x')",
        "1 if 1 else 2",
        "1j",
        "1e999",
        "0x10",
        "1_000",
        "007",
        "1 2",
        "1,2",
        "(1)(2)",
        "(" * 60 + "1" + ")" * 59,
        "-" * 100 + "1",
        "(" * 40 + "1" + "+1)" * 20 + ")" * 20 + "+" * 3,
        "1+" * 59 + "1",
        "1" * 121,
        "1\n+1",
        "\u0663 + \u0661",
        "\x00",
    ],
)
def test_calc_refuses_everything_else_with_a_text(expression: str, server: Any) -> None:
    with pytest.raises(server.AgentMistake, match=r"\w{3,}"):
        server.calc(expression)


def test_cat_accepts_a_leading_slash_and_an_ending(
    texts: dict[str, str], server: Any, db: sqlite3.Connection
) -> None:
    path, text = next(iter(texts.items()))
    for written in (path, f"/{path}", f"{path}.md", f" /{path}.md ", path.upper()):
        assert server.cat(db, written) == text


def test_a_missing_document_is_answered_with_what_there_is(
    texts: dict[str, str], server: Any, db: sqlite3.Connection
) -> None:
    slug = next(iter(texts)).split("/")[0]
    with pytest.raises(server.AgentMistake, match=f"there is {slug}/2020 to {slug}/2023"):
        server.cat(db, f"{slug}/2019")
    with pytest.raises(server.AgentMistake, match="no document alder-food/2021; try search"):
        server.cat(db, "alder-food/2021")
    with pytest.raises(server.AgentMistake, match="no document"):
        server.cat(db, "../../etc/passwd")


def test_list_shows_companies_at_the_root_and_reports_below(
    texts: dict[str, str], server: Any, db: sqlite3.Connection
) -> None:
    slugs = sorted({path.split("/")[0] for path in texts})
    for root in ("", "/", "."):
        assert server.list_paths(db, root) == f"600 companies: {' '.join(slugs[:20])} ..."
    assert server.list_paths(db, f"{slugs[0]}/").split() == [
        f"{slugs[0]}/{y}" for y in range(2020, 2024)
    ]
    for wrong in ("nobody", f"{slugs[0]}/2021", "%", "_"):
        with pytest.raises(server.AgentMistake):
            server.list_paths(db, wrong)


# --- the server ----------------------------------------------------------------------------------


def test_the_server_speaks_the_wire_contract(client: httpx2.Client, texts: dict[str, str]) -> None:
    path = next(iter(texts))
    name = texts[path].splitlines()[0]
    status, found = post(client, "search", {"query": name})
    assert (status, found.split(" | ")[0]) == (200, path)
    assert post(client, "cat", {"path": path}) == (200, texts[path])
    assert post(client, "list", {"path": path.split("/")[0]})[1].split()[0] == path
    assert post(client, "calc", {"expression": "482 - 455"}) == (200, "27")


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("cat", {"path": "alder-food/2021"}, 404),
        ("cat", {}, 400),
        ("cat", {"path": 7}, 400),
        ("cat", "[]", 400),
        ("cat", "{not json", 400),
        ("cat", "[" * 100_000, 400),
        ("cat", {"path": "\ud800"}, 404),
        ("cat", {"path": "a\x00b"}, 404),
        ("search", {"query": ""}, 400),
        ("search", {"query": "\ud800 xyzzy"}, 404),
        ("search", {"query": "xyzzy"}, 404),
        ("list", {"path": "nobody"}, 404),
        ("calc", {"expression": "1 / 0"}, 400),
        ("calc", {"expression": "exit()"}, 400),
    ],
)
def test_a_mistake_of_the_agent_is_a_4xx_with_a_text(
    client: httpx2.Client, tool: str, arguments: object, status: int
) -> None:
    got, output = post(client, tool, arguments)
    assert got == status
    assert 5 < len(output) < 120


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff\xfe", b'{"type": "message"}', b"[" * 90_000])
def test_a_body_that_is_no_call_is_refused(client: httpx2.Client, body: bytes) -> None:
    reply = client.post("/cat", content=body)
    assert reply.status_code == 400
    assert reply.json()["output"]


def test_a_body_over_one_megabyte_is_refused_and_other_addresses_do_not_exist(
    client: httpx2.Client,
) -> None:
    assert client.post("/cat", content=b" " * 1_000_001).status_code == 413
    assert client.post("/shell", json={}).status_code == 404
    assert client.get("/cat").status_code == 405


def test_a_server_without_data_makes_it_and_latency_is_added_to_every_call(
    tmp_path: Path, data: Path
) -> None:
    with serving(tmp_path / "data", "--latency-ms", "200") as http:
        started = time.monotonic()
        assert post(http, "calc", {"expression": "1 + 1"}) == (200, "2")
        assert time.monotonic() - started >= 0.2
    for name in FILES:
        assert (tmp_path / "data" / name).read_bytes() == (data / name).read_bytes()


def test_a_server_without_its_index_leaves_the_other_data_alone(tmp_path: Path) -> None:
    kept = tmp_path / "tasks.jsonl"
    kept.write_text("of another world")
    command = [sys.executable, "server.py", "--port", "1", "--data", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("reports.sqlite is missing beside tasks.jsonl: run corpus.py")
    assert [p.name for p in tmp_path.iterdir()] == ["tasks.jsonl"]
    assert kept.read_text() == "of another world"


# --- the project file ----------------------------------------------------------------------------


def test_the_project_is_at_most_six_files() -> None:
    files = [
        p
        for p in PROJECT.rglob("*")
        if p.is_file() and not {"data", ".learnloop", "__pycache__"} & set(p.parts)
    ]
    assert {p.name for p in files} <= {
        "learnloop.toml",
        "AGENTS.md",
        "system.md",
        "corpus.py",
        "server.py",
        "test_project.py",
    }


def test_tools_in_the_project_file_are_those_the_server_has(server: Any) -> None:
    config = tomllib.loads((PROJECT / "learnloop.toml").read_text())
    declared = {tool["name"]: tool["parameters"]["required"] for tool in config["tools"]}
    assert declared == {name: [key] for name, (key, _) in server.TOOLS.items()}
    for tool in config["tools"]:
        assert tool["server_url"] == f"{{service:reports}}/{tool['name']}"
        assert list(tool["parameters"]["properties"]) == tool["parameters"]["required"]
    assert set(config["curriculum"]["weights"]) == KINDS


def test_the_projects_own_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_project.py"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
