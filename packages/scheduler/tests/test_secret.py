"""Secrets are masked wherever they are shown, copied or encoded."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.secret import SecretUrl, mask

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:pw@host:6379/0", "redis://***@host:6379/0"),
        ("rediss://user:pw@host", "rediss://***@host"),
        ("redis://:p@ss@host", "redis://***@host"),
        ("redis://:p?w@host", "redis://***"),
        ("redis://host?password=a@b", "redis://***"),
        ("redis://:p#w@host", "redis://***"),
        ("unix:///run/store.sock", "unix:///run/store.sock"),
        ("just-a-password", "***"),
    ],
)
def test_a_url_is_shown_without_what_could_be_a_password(text: str, expected: str) -> None:
    assert mask(text) == expected


@given(st.text(max_size=40))
def test_no_password_is_shown_whatever_its_characters(middle: str) -> None:
    url = SecretUrl(f"redis://user:<<{middle}>>@host:6379/0")
    for shown in (str(url), repr(url), f"{url}", f"{[url]}"):
        assert "<<" not in shown
        assert ">>" not in shown


def test_only_reveal_gives_the_real_url() -> None:
    assert SecretUrl("redis://:pw@host").reveal() == "redis://:pw@host"


def test_urls_are_equal_by_their_real_text() -> None:
    assert SecretUrl("redis://:a@host") == SecretUrl("redis://:a@host")
    assert SecretUrl("redis://:a@host") != SecretUrl("redis://:b@host")
    assert SecretUrl("redis://host") != "redis://host"
    assert len({SecretUrl("redis://:a@host"), SecretUrl("redis://:a@host")}) == 1


def test_an_empty_url_is_false() -> None:
    assert not SecretUrl("")
    assert SecretUrl("redis://host")


def test_a_copy_keeps_the_real_text() -> None:
    url = SecretUrl("redis://:pw@host")
    assert copy.deepcopy(url) == url
    assert pickle.loads(pickle.dumps(url)) == url
