"""Names that nobody else has."""

from ternmq_runtime.unique_name import unique_name


def test_random_names_differ_and_have_the_requested_length() -> None:
    assert len({unique_name(4) for _ in range(50)}) > 48
    assert len(unique_name(4)) == 8
    assert len(bytes.fromhex(unique_name())) == 16
