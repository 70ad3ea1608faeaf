from random import Random, seed

from ternmq_runtime.secret_bytes import secret_bytes


def test_secret_bytes_follow_no_seed() -> None:
    found: set[bytes] = set()
    for _ in range(100):
        seed(1)
        found.add(secret_bytes(32))
    assert {len(each) for each in found} == {32}
    assert len(found) == 100
    assert Random(1).randbytes(32) not in found
