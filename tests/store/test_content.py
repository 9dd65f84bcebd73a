"""Content policies: what each keeps of a rollout, and that numbers stay in all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.store.rich_trace import SAID, SECRETS, rich_trace

from learnloop.config import Config
from learnloop.event import Event
from learnloop.store import Store
from learnloop.store.content import mask, reduce
from learnloop.trace import Content, Trace

SALT = b"0123456789abcdef"
REDUCED: tuple[Content, ...] = ("masked", "hash", "none", "erased")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "learnloop.db") as opened:
        yield opened


def numbers(trace: Trace) -> dict[str, object]:
    """Return everything of a trace that is counted or averaged anywhere."""
    return {
        "score": trace.score and (trace.score.value, trace.score.correct, trace.score.parts),
        "calls": [(c.call.name, c.round, c.ran, c.is_error, c.latency_s) for c in trace.calls],
        "turns": [
            (t.tokens_in, t.tokens_out, t.latency_s, bool(t.malformed), t.finish_reason)
            for t in trace.turns
        ],
        "latency": trace.latency_s,
        "roles": [m.role for m in trace.messages],
    }


@pytest.mark.parametrize("content", REDUCED)
def test_numbers_stay_and_what_was_said_goes(content: Content) -> None:
    trace = rich_trace()
    kept = reduce(trace, content, SALT)
    assert kept.content == content
    assert numbers(kept) == numbers(trace)
    text = json.dumps(asdict(kept))
    assert [secret for secret in SECRETS if secret in text] == []
    assert all(turn.token_ids == turn.logprobs == () for turn in kept.turns)
    assert ("Result for everybody" in text) == (content == "masked")


def test_full_content_is_the_trace_itself() -> None:
    trace = rich_trace()
    assert reduce(trace, "full", SALT) is trace


def test_hashes_are_equal_within_a_rollout_and_differ_between_salts() -> None:
    trace = rich_trace()
    one, other = (reduce(trace, "hash", salt) for salt in (SALT, b"another"))
    assert one.calls[0].output == one.messages[3].content
    assert one.calls[0].output.startswith("sha256:")
    assert one.calls[0].output != other.calls[0].output


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("mail ada@example.co.uk now", "mail [email] now"),
        ("call +44 20 7946 0958.", "call [phone]."),
        ("call (030) 123 45 67 or 555-123-4567", "call [phone] or [phone]"),
        ("card 4111-1111-1111-1111 and id 123456789012", "card [card] and id [digits]"),
        ("Authorization: Bearer abcDEF123456.x", "Authorization: [key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[key]"),
        ("token 9f8e7d6c5b4a39281706f5e4d3c2b1a0", "token [key]"),
    ],
)
def test_what_names_people_and_keys_is_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "revenue of 1,234,567.89 in 2012, up 3.5%",
        "2010 2011 2012 2014",
        "from 2024-01-02 to 2024-12-31",
        "see reports/annual/2012/aldermoor_foods.txt",
        "0.123456789 or -12345678",
        "an internationalization-and-localization word",
    ],
)
def test_figures_dates_and_paths_are_not_masked(text: str) -> None:
    assert mask(text) == text


def test_a_tool_name_that_is_none_is_a_text(store: Store) -> None:
    trace = rich_trace()
    record = trace.calls[0]
    odd = replace(record, call=replace(record.call, name=f"ask {SECRETS[0]}"), ran=False)
    kept = reduce(replace(trace, calls=(odd, record)), "none", SALT)
    assert [c.call.name for c in kept.calls] == ["(not kept)", "search"]


def test_a_name_of_a_part_that_is_no_plain_word_is_a_text() -> None:
    score = rich_trace().score
    assert score is not None
    parts = {
        "valid": 1.0,
        "cost.factor-2": 0.9,
        f"wrote {SECRETS[0]}": 0.1,
        SECRETS[3]: 0.2,  # one word, and a key
        "It is 42": 0.3,
        "a" * 41: 0.4,
    }
    trace = replace(rich_trace(), score=replace(score, parts=parts))

    def names(content: Content) -> list[str]:
        kept = reduce(trace, content, SALT).score
        assert kept is not None
        assert list(kept.parts.values()) == list(parts.values()), "every number stays"
        return list(kept.parts)

    plain = ["valid", "cost.factor-2"]
    assert names("masked") == [*plain, "wrote [email]", "[key]", "It is 42", "a" * 41]
    assert [name[:7] for name in names("hash")] == [*(n[:7] for n in plain), *["sha256:"] * 4]
    numbered = [f"(not kept) {n}" for n in (2, 3, 4)]
    assert names("none") == names("erased") == [*plain, "(not kept)", *numbered]


@pytest.mark.parametrize("content", REDUCED[:3])
def test_stored_content_is_reduced_once_training_is_done_with_it(
    store: Store, content: Content
) -> None:
    run_id = store.create_run(Config(), command="train", seed=0).id
    for step in (1, 2):
        store.save_trace(run_id, "train", step, rich_trace(step))
    store.append_event(Event(kind="step", run_id=run_id, data={"step": 1}))
    assert store.reduce(run_id, content, "train", upto=1) == 1
    assert store.reduce(run_id, content, "train", upto=1) == 0
    assert [t.content for t in store.traces(run_id)] == [content, "full"]
    assert store.trace(rich_trace(2).id) == rich_trace(2)
    assert store.audit().broken is None
    assert [e.kind for e in store.ledger()][-1] == "content_reduced"


def test_a_rollout_stored_reduced_never_had_its_texts_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    with Store.open(path) as store:
        run_id = store.create_run(Config(), command="eval", seed=0).id
        store.save_trace(run_id, "screen", 0, rich_trace(), "none")
        assert store.reduce(run_id, "full", "screen", upto=9) == 0
        found = store.trace(rich_trace().id)
    assert SAID not in repr(found)
    assert found.content == "none"
