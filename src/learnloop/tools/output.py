"""How a result becomes the text that the model is shown."""

from __future__ import annotations

from learnloop.codec import json_text
from learnloop.outbound import MAX_BYTES
from learnloop.tool import ToolOutput


def output_of(value: object, *, is_error: bool = False) -> ToolOutput:
    """Return a result as the model is shown it: text as it is, anything else as JSON.

    One over the limit of the wire contract is told as such, as with tools over HTTP.

    Raises:
        ValueError: it has no JSON form.
    """
    text = value if isinstance(value, str) else json_text(value)
    # JSON and Python may smuggle in half a surrogate pair, which cannot be stored.
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        what = f"error: 413 payload too large: the result of {len(data)} bytes is over {MAX_BYTES}"
        return ToolOutput(text=what, is_error=True)
    return ToolOutput(text=data.decode(), is_error=is_error)
