"""The JSON door: everything that comes in or goes out as JSON, JSONL or TOML passes here.

`traces` keeps traces exactly, `configs` reads `learnloop.toml`, `rows` reads datasets, `signatures`
reads Python functions, `chat` is the chat-completions shape of messages and tool schemas. No other
module declares pydantic models.
"""

from learnloop.codec.chat import (
    canonical_json,
    message_from_chat,
    message_to_chat,
    parameters_of,
    schema_from_chat,
    schema_problem,
    schema_to_chat,
)
from learnloop.codec.configs import (
    Loaded,
    config_changes,
    config_from_json,
    config_hash,
    config_json,
    config_leaves,
    load_config,
    read_config,
)
from learnloop.codec.rows import (
    Demo,
    RowError,
    config_schemas,
    content_id,
    load_demos,
    load_rows,
    load_tasks,
    row_label,
)
from learnloop.codec.signatures import (
    ArgumentsError,
    Signature,
    SignatureError,
    json_text,
    read_signature,
)
from learnloop.codec.traces import trace_from_json, trace_to_json

__all__ = [
    "ArgumentsError",
    "Demo",
    "Loaded",
    "RowError",
    "Signature",
    "SignatureError",
    "canonical_json",
    "config_changes",
    "config_from_json",
    "config_hash",
    "config_json",
    "config_leaves",
    "config_schemas",
    "content_id",
    "json_text",
    "load_config",
    "load_demos",
    "load_rows",
    "load_tasks",
    "message_from_chat",
    "message_to_chat",
    "parameters_of",
    "read_config",
    "read_signature",
    "row_label",
    "schema_from_chat",
    "schema_problem",
    "schema_to_chat",
    "trace_from_json",
    "trace_to_json",
]
