"""Secrets: filled in from the environment, hidden everywhere else."""

from __future__ import annotations

import pytest

from learnloop.errors import ConfigError
from learnloop.outbound.route import Endpoint
from learnloop.outbound.secret import check_credentials, expand_headers, redactor, shown_url


def test_variables_are_filled_in_within_a_value() -> None:
    headers = expand_headers({"A": "Bearer ${KEY}!", "B": "$KEY"}, {"KEY": "k"}, where="tool x")
    assert headers == {"A": "Bearer k!", "B": "$KEY"}


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigError, match=r"tool x: .*KEY.*export KEY="):
        expand_headers({"A": "${KEY}"}, {}, where="tool x")


def test_a_key_is_hidden_with_and_without_its_scheme() -> None:
    redact = redactor("http://a/", {"Authorization": "Bearer sk-123456"})
    assert redact("sent Bearer sk-123456, key sk-123456") == "sent [redacted], key [redacted]"


def test_secrets_in_the_address_are_hidden_too() -> None:
    redact = redactor("http://user:pass%20word@a/?key=abcdefg", {})
    assert redact("pass word, pass%20word, abcdefg") == ", ".join(["[redacted]"] * 3)
    assert shown_url("http://user:password@a:1/x?key=abcdefg#f") == "http://a:1/x"


def test_harmless_headers_and_short_values_hide_nothing() -> None:
    redact = redactor("http://a/", {"Accept": "application/json", "X-Version": "1"})
    assert redact("application/json 1") == "application/json 1"


def test_an_endpoint_does_not_show_its_headers() -> None:
    endpoint = Endpoint(name="tool x", url="http://u:hunter2@a/", headers={"K": "hunter2"})
    assert "hunter2" not in repr(endpoint)


@pytest.mark.parametrize(
    "shown",
    [r"ab\"cd\\efghij", r"ab\u0022cd\u005Cefghij", "ab%22cd%5cefghij", "ab&quot;cd\\efghij"],
)
def test_a_key_is_hidden_however_it_is_escaped(shown: str) -> None:
    redact = redactor("http://a/", {"Authorization": 'Bearer ab"cd\\efghij'})
    assert redact(f"key {shown}.") == "key [redacted]."


def test_the_basic_form_of_user_and_password_is_hidden() -> None:
    redact = redactor("http://usr:SEKRETPW654@a/", {})
    assert redact("Basic dXNyOlNFS1JFVFBXNjU0") == "Basic [redacted]"


@pytest.mark.parametrize("value", ["", "\u00e91234567", "nl\nkey", "tab\tkey"])
def test_a_value_that_no_header_can_carry_names_header_and_variable(value: str) -> None:
    with pytest.raises(ConfigError, match=r"tool x: header A \(.*variable KEY\)") as caught:
        expand_headers({"A": "${KEY}"}, {"KEY": value}, where="tool x")
    assert not value or value not in str(caught.value)


def test_a_user_in_the_address_beside_an_authorization_header_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tool x: .*one would be lost"):
        check_credentials("http://u:p@a/", {"authorization": "Bearer k"}, where="tool x")
    check_credentials("http://u:p@a/", {"X-Key": "k"}, where="tool x")
