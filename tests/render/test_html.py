"""The HTML page: one file, no scripts, no requests, and nothing a model wrote is markup."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.sample_run import HOSTILE, empty_inputs, partial_inputs, sample_inputs

from learnloop.render.html import to_html
from learnloop.report import Report, build

VOID = {"meta", "br", "img", "link", "hr", "input"}
SECTIONS = ("headline", "variance", "tools", "reward", "cases", "method", "again", "signed")


@pytest.fixture(scope="module")
def report() -> Report:
    return build(sample_inputs())


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return to_html(report)


class Reader(HTMLParser):
    """Collects tags and text, and checks that every tag is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.ids += [v for k, v in attrs if k == "id" and v]
        self.links += [v for k in ("src", "href") if (v := values.get(k))]
        assert not any(k.startswith("on") for k in values), f"handler in {tag}"
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, tag
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def test_the_page_is_well_formed_and_has_every_section_once(page: str) -> None:
    reader = read(page)
    assert len(reader.ids) == len(set(reader.ids))
    assert set(SECTIONS) <= set(reader.ids)


def test_nothing_on_the_page_runs_or_is_fetched(page: str) -> None:
    reader = read(page)
    assert not {"script", "iframe", "object", "img", "link"} & set(reader.tags)
    assert all(link.startswith("#") for link in reader.links)
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_what_a_model_or_a_tool_wrote_is_shown_as_text(page: str) -> None:
    assert "<script" not in page
    assert "onerror=alert(1)>" not in page
    assert any(HOSTILE in words for words in read(page).words)


def test_hostile_words_in_every_name_stay_text() -> None:
    sample = sample_inputs(opened=False)
    tasks = {k: replace(t, kind=f"{HOSTILE}{t.kind}") for k, t in sample.tasks.items()}
    hostile = replace(
        sample,
        project=HOSTILE,
        command=HOSTILE,
        run_id=HOSTILE,
        tasks=tasks,
        stage=HOSTILE,
        finished=False,
        meta={HOSTILE: HOSTILE},
        config={"a": HOSTILE},
    )
    page = to_html(build(hostile))
    assert "<script" not in page
    assert "<img" not in page
    read(page)


def test_only_an_unfinished_run_reloads_itself(page: str) -> None:
    assert 'http-equiv="refresh"' not in page
    assert 'http-equiv="refresh"' in to_html(build(partial_inputs(3)))


def test_a_run_that_has_only_started_says_not_yet_in_every_part() -> None:
    page = to_html(build(empty_inputs()))
    assert page.count("Not yet.") >= 6
    read(page)


@pytest.mark.parametrize("done", [0, 1, 10])
def test_the_page_can_be_written_at_any_moment_of_the_training(done: int) -> None:
    read(to_html(build(partial_inputs(done))))


def test_every_chart_has_n_a_method_and_a_table_view(page: str) -> None:
    figures = re.findall(r"<figure>.*?</figure>", page, flags=re.DOTALL)
    assert len(figures) >= 6
    for figure in figures:
        assert figure.count("<svg") >= 2
        assert re.search(r"<figcaption>.*?\bn\b", figure)
        assert "<table>" in figure
        assert 'role="img" aria-label=' in figure


def test_verdict_measures_and_both_parts_of_the_gain_are_on_the_page(
    page: str, report: Report
) -> None:
    text = " ".join(" ".join(read(page).words).split())
    assert report.verdict.sentence in text
    for words in ("Tool calls among correct", "Latency p50", "more answers that can be read"):
        assert words in text
    for kind in report.splits[0].kinds:
        assert kind.kind in text


def test_the_page_stays_small(page: str) -> None:
    assert len(page.encode()) < 1_000_000


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_the_page_without_sideways_scrolling(
    page: str, tmp_path: Path, width: int
) -> None:
    probe = (
        "<script>addEventListener('load',()=>{const r=document.documentElement;"
        "document.title='over:'+(r.scrollWidth-r.clientWidth)+':'+r.clientWidth})</script>"
    )
    # The frame gives a telephone's width, which a headless window alone cannot have.
    inner = page.replace("default-src 'none'", "script-src 'unsafe-inline'; default-src 'none'")
    (tmp_path / "page.html").write_text(
        inner.replace("</body>", f"{probe}</body>"), encoding="utf-8"
    )
    frame = (
        f"<iframe id=f src=page.html width={width} height=900></iframe><script>"
        "f.onload=()=>setTimeout(()=>document.body.append(f.contentDocument.title),50)</script>"
    )
    (tmp_path / "frame.html").write_text(f"<!doctype html><body>{frame}", encoding="utf-8")
    found = re.search(r"over:(-?\d+):(\d+)", dump(tmp_path / "frame.html", tmp_path / "profile"))
    assert found is not None
    assert int(found[1]) <= 0
    assert abs(int(found[2]) - width) <= 20


def dump(page: Path, profile: Path) -> str:
    command = [
        "chromium",
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(
            "--allow-file-access-from-files",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=3000",
        ),
        *("--window-size=1400,1000", "--dump-dom", page.as_uri()),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=90, check=False, env=dict(os.environ)
    )
    return done.stdout
