import pytest

from ternmq_console.dlq import body_text


@pytest.mark.parametrize(
    ("body", "as_hex", "text"),
    [
        (b"plain", False, "plain"),
        ("grün".encode(), False, "grün"),
        (b"", False, ""),
        (b"\xff\xfe", False, "0xfffe"),
        (b"a\x1b[2J", False, "0x611b5b324a"),
        (b"plain", True, "0x706c61696e"),
    ],
)
def test_bodies_are_shown_as_text_or_hex_and_never_control_a_terminal(
    body: bytes, as_hex: bool, text: str
) -> None:
    assert body_text(body, as_hex=as_hex) == text
