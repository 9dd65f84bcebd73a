"""`learnloop doctor`: what it finds on this machine, and what it says about bad settings."""

from __future__ import annotations

import platform
from pathlib import Path

from learnloop.doctor import Finding, diagnose, usable_cores


def found(name: str, environ: dict[str, str], cache: Path) -> Finding:
    (finding,) = (f for f in diagnose(environ=environ, cache_dir=cache) if f.name == name)
    return finding


def test_every_finding_has_its_own_name_and_a_fix_unless_all_is_well(tmp_path: Path) -> None:
    findings = diagnose(environ={}, cache_dir=tmp_path / "cache")
    assert len({finding.name for finding in findings}) == len(findings)
    assert all(finding.status == "ok" or finding.fix for finding in findings)
    assert not (tmp_path / "cache").exists()


def test_the_running_python_is_reported(tmp_path: Path) -> None:
    finding = found("python", {}, tmp_path)
    assert (finding.status, platform.python_version() in finding.detail) == ("ok", True)


def test_a_missing_model_is_a_warning_that_names_the_command(tmp_path: Path) -> None:
    finding = found("model", {}, tmp_path)
    assert (finding.status, finding.fix) == ("warning", "Run `learnloop models pull smollm2-135m`")


def test_a_half_made_model_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "models" / "smollm2-135m").mkdir(parents=True)
    finding = found("model", {}, tmp_path)
    assert finding.status == "problem"
    assert "manifest.json" in finding.detail


def test_openmp_threads_that_spin_are_warned_about(tmp_path: Path) -> None:
    assert found("openmp", {}, tmp_path).status == "ok"
    assert found("openmp", {"OMP_WAIT_POLICY": "passive"}, tmp_path).status == "ok"
    assert found("openmp", {"OMP_WAIT_POLICY": "ACTIVE"}, tmp_path).status == "warning"
    assert found("openmp", {"GOMP_SPINCOUNT": "100000"}, tmp_path).status == "warning"


def test_cores_are_those_this_process_may_use() -> None:
    assert usable_cores() >= 1
