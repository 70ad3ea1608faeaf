import pytest

from ternmq_model.errors import IllegalName, UsageError
from ternmq_security.access.user import TokenHash, User


def token(token_id: str = "t", n: int = 1 << 14, salt: bytes = b"s" * 16) -> TokenHash:
    return TokenHash(token_id, salt, b"d" * 32, n, 8, 1, 1)


@pytest.mark.parametrize("name", ["", "anonymous", "a b", ".a", "ü", "x" * 65])
def test_illegal_name_of_a_user_is_refused(name: str) -> None:
    with pytest.raises(IllegalName):
        User(name)


def test_user_has_at_most_two_tokens() -> None:
    User("a", (token("1"), token("2")))
    with pytest.raises(UsageError, match="at most 2"):
        User("a", (token("1"), token("2"), token("3")))


def test_user_has_each_token_and_subject_once() -> None:
    for tokens, subjects in (((token(), token()), ()), ((), ("CN=a", "CN=a"))):
        with pytest.raises(UsageError, match="twice"):
            User("a", tokens, subjects)
    with pytest.raises(UsageError, match="1 to 1024"):
        User("a", subjects=("",))


def test_hash_with_a_cost_that_would_fill_the_memory_is_refused() -> None:
    for n in (0, 3, 1 << 30):
        with pytest.raises(UsageError, match="out of bounds"):
            token(n=n)
    with pytest.raises(UsageError, match="out of bounds"):
        token(salt=b"")
