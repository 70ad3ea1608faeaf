import json

import pytest

from ternmq_model.json_checksum import CHECKSUM_MEMBER, add_checksum, verify_checksum

TEXT = json.dumps({"offsetTable": {"orders@billing": {"0": 1200, "1": 7}}}, indent="\t") + "\n"


@pytest.mark.parametrize("text", ["{}", TEXT, '{"a": "é"}', json.dumps({"a": {}}, indent=1)])
def test_checksum_is_one_member_more(text: str) -> None:
    data = add_checksum(text)
    assert verify_checksum(data)
    content = json.loads(data)
    assert len(content.pop(CHECKSUM_MEMBER)) == 8
    assert content == json.loads(text)


def test_flipped_bit_is_found_or_leaves_the_content_as_it_was() -> None:
    data = add_checksum(TEXT)
    content_bytes = data.index(b',\n\t"crc32')
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            try:
                has_checksum = verify_checksum(bytes(damaged))
            except ValueError:
                continue
            assert not has_checksum
            assert damaged[:content_bytes] == data[:content_bytes]


def test_rewritten_file_has_no_checksum() -> None:
    content = json.loads(add_checksum(TEXT))
    sorted_members = json.dumps(content, indent="\t", sort_keys=True).encode() + b"\n"
    assert not verify_checksum(sorted_members)
    assert not verify_checksum(b'{\n\t"offsetTable":{}\n}')
    assert not verify_checksum(b"")
