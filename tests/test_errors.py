"""A refusal of the operating system names the file of the user, and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnloop.errors import UserError, writing

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
def test_a_full_disk_names_the_file_that_was_wanted(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error, writing(tmp_path / "report.html"):
        FULL.write_text("x")
    assert error.value.line() == (
        f"{tmp_path / 'report.html'}: cannot be written: No space left on device. "
        "Make room on the disk."
    )


def test_other_refusals_are_told_as_the_system_has_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written: Not a directory$"), writing(tmp_path):
        (tmp_path / "file" / "below").write_text("")
