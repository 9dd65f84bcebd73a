"""Fields of a row, also inside others."""

from __future__ import annotations

from learnloop.task import field_of

ITEM = {"answer": 3, "gold": {"text": "Oslo", "deep": {"x": 1}}, "a.b": "own"}


def test_a_field_is_found_by_its_name_or_by_its_path() -> None:
    assert field_of(ITEM, "answer") == 3
    assert field_of(ITEM, "gold.text") == "Oslo"
    assert field_of(ITEM, "gold.deep.x") == 1
    assert field_of(ITEM, "a.b") == "own"


def test_what_is_not_there_is_none() -> None:
    for path in ("none", "gold.none", "answer.text", "gold.text.more", ""):
        assert field_of(ITEM, path) is None
