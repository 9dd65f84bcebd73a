"""The signature of a request: proof to a server that it comes from us and was not changed."""

from __future__ import annotations

import hashlib
import hmac

TIMESTAMP = "X-Learnloop-Timestamp"
SIGNATURE = "X-Learnloop-Signature"


def signature_headers(secret: str, body: bytes, at_s: int) -> dict[str, str]:
    """Return the headers that sign a body sent at a time (Unix seconds).

    The server computes HMAC-SHA256 over `TIMESTAMP.BODY` with the shared secret, compares in
    constant time, and refuses old timestamps.
    """
    stamp = str(at_s)
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {TIMESTAMP: stamp, SIGNATURE: f"sha256={digest}"}
