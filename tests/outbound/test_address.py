"""The address policy: what may be called, and what never may."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from learnloop.errors import ConfigError
from learnloop.outbound.address import allowed_addresses, check_url

NEVER = [
    "169.254.169.254",
    "169.254.1.1",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "100.100.100.200",
    "168.63.129.16",
    "0.0.0.0",
    "[::]",
    "224.0.0.1",
]
PRIVATE = ["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "[::1]", "[fd00::1]"]
PUBLIC = ["93.184.215.14", "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]"]


@pytest.mark.parametrize("host", NEVER)
def test_link_local_and_metadata_addresses_are_never_called(host: str) -> None:
    for allow in (False, True):
        with pytest.raises(ConfigError, match="forbids"):
            check_url(f"http://{host}/x", allow_private=allow, where="tool x")


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_need_leave(host: str) -> None:
    check_url(f"http://{host}:8080/x", allow_private=True, where="tool x")
    with pytest.raises(ConfigError, match="allow_private"):
        check_url(f"http://{host}:8080/x", allow_private=False, where="tool x")


@pytest.mark.parametrize("host", [*PUBLIC, "tools.example.com"])
def test_public_addresses_and_names_pass(host: str) -> None:
    check_url(f"https://{host}/x", allow_private=False, where="tool x")


@pytest.mark.parametrize(
    "url",
    ["", "tools.example.com/x", "ftp://a/x", "file:///etc/passwd", "http://", "http://a:99999/"],
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"tool x: .*not a web address"):
        check_url(url, allow_private=True, where="tool x")


def test_a_secret_in_a_bad_address_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        check_url("ftp://user:hunter2@host/x?key=hunter2", allow_private=True, where="tool x")
    assert "hunter2" not in caught.value.line()


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.0.0.1"])
def test_other_spellings_of_loopback_are_judged_by_where_they_lead(host: str) -> None:
    look_up = partial(allowed_addresses, host, 80)
    assert anyio.run(partial(look_up, allow_private=False)) == ()
    assert "127.0.0.1" in anyio.run(partial(look_up, allow_private=True))
