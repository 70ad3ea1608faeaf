import pytest
from breaking import (
    additions,
    broken_promises,
    contract_files,
    contract_of,
    read_snapshot,
)

from tests.tidy.proto_rules import uncommented
from tools.project import ROOT, relative


def test_every_contract_item_has_a_comment() -> None:
    files = sorted((ROOT / "protos" / "ternmq").rglob("*.proto"))
    assert files
    found = [str(bare) for file in files for bare in uncommented(relative(file), file.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "service A {",
        "  rpc B(C) returns (D);",
        "message A {}",
        "  int32 a = 1;",
        "  repeated a.B b = 2;",
        "    map<string, string> c = 3;",
        "enum A {",
        "  A_B = 0;",
    ],
)
def test_uncommented_contract_item_is_found_at_its_line(line: str) -> None:
    begin = 'syntax = "proto3";\n\n// Why.\nmessage X {\n'
    assert [bare.line for bare in uncommented("x.proto", f"{begin}{line}\n}}\n")] == [5]
    assert not list(uncommented("x.proto", f"{begin}  // Why.\n{line}\n  // End.\n}}\n"))


def test_contracts_keep_their_promises() -> None:
    broken = broken_promises(read_snapshot(), contract_of(contract_files()))
    assert not broken, "\n".join(broken)


def test_contract_additions_are_in_the_snapshot() -> None:
    new = additions(read_snapshot(), contract_of(contract_files()))
    assert not new, "run `make protos`:\n" + "\n".join(new)


def test_snapshot_records_every_contract_detail() -> None:
    told = read_snapshot()
    assert told["message ternmq.v1.SendRequest = 4"] == "bytes body"
    assert told["message ternmq.v1.SendStreamRequest = 2"] == (
        "ternmq.v1.SendBatch batch oneof request"
    )
    assert told["message ternmq.v1.ListTopicsReply = 2"] == "repeated string topics"
    assert told["enum ternmq.v1.MessageModel = 1"] == "CLUSTERING"
    assert told["rpc /ternmq.v1.Groups/Session"] == (
        "stream ternmq.v1.SessionRequest -> stream ternmq.v1.SessionReply"
    )


def test_removed_renumbered_retyped_and_renamed_fields_break_a_promise() -> None:
    promised = {"message A = 1": "int32 a", "message A = 2": "int32 b", "rpc /S/R": "A -> B"}
    for found in (
        {"message A = 1": "int32 a", "rpc /S/R": "A -> B"},
        {"message A = 1": "int32 a", "message A = 3": "int32 b", "rpc /S/R": "A -> B"},
        {**promised, "message A = 2": "int64 b"},
        {**promised, "message A = 2": "int32 c"},
        {**promised, "rpc /S/R": "A -> stream B"},
    ):
        assert len(broken_promises(promised, found)) == 1
    more = {**promised, "message A = 3": "int32 c"}
    assert not broken_promises(promised, more)
    assert additions(promised, more) == ["message A = 3: int32 c"]
