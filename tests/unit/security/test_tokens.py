from dataclasses import replace

import pytest

from ternmq_model.errors import IllegalName, UsageError
from ternmq_security.tokens import matches, new_token, user_of

SECRET, SALT = bytes(range(32)), b"s" * 16


def test_token_matches_its_own_hash_alone() -> None:
    text, token = new_token("a.b", SECRET, SALT, 5, 10)
    assert text.startswith("tmq.a.b.")
    assert user_of(text) == "a.b"
    assert matches(text, token)
    assert not matches(text[:-1], token)
    assert not matches(text.replace("a.b", "a.c"), token)
    assert not matches(text, replace(token, salt=b"t" * 16))
    assert not matches("ü", token)
    assert (token.is_valid_at(9), token.is_valid_at(10)) == (True, False)


def test_representation_of_a_hash_has_neither_salt_nor_digest() -> None:
    text, token = new_token("a", SECRET, SALT, 5)
    for hidden in (text.rpartition(".")[2], repr(token.salt), repr(token.digest)):
        assert hidden not in repr(token)


@pytest.mark.parametrize("text", ["", "tmq", "tmq.a", "tmq.a.", "x.a.se", "tmq.a b.se", "tmq.ü.se"])
def test_malformed_token_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(UsageError, match="malformed") as raised:
        user_of(text)
    assert "se" not in str(raised.value).replace("USER.SECRET", "")
    assert raised.value.__context__ is None


def test_new_token_needs_a_name_and_random_bytes() -> None:
    with pytest.raises(IllegalName):
        new_token("anonymous", SECRET, SALT, 5)
    with pytest.raises(UsageError, match="32 random bytes"):
        new_token("a", b"short", SALT, 5)
