"""The report of a run: built from traces by pure functions, at any moment of the run.

inputs.py    ReportInputs   what it is made from
build.py                    build(inputs) -> Report, report_to_json(report)
document.py  Report         the tree of plain values that pages are made from
measures.py  MeasureRow     rows of the before-and-after table
cases.py     Case           wins and regressions side by side
words.py                    verdict, caveats, method box, what is missing
"""

from __future__ import annotations

from learnloop.report.build import build, report_to_json
from learnloop.report.document import SCHEMA_VERSION, Report
from learnloop.report.inputs import (
    ArmName,
    CheckpointRow,
    Evaluation,
    Label,
    ReportInputs,
    Seal,
    SignOff,
)
from learnloop.report.words import rival_words

__all__ = [
    "SCHEMA_VERSION",
    "ArmName",
    "CheckpointRow",
    "Evaluation",
    "Label",
    "Report",
    "ReportInputs",
    "Seal",
    "SignOff",
    "build",
    "report_to_json",
    "rival_words",
]
