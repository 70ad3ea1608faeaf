from tools.check_coverage import FLOORS, reached
from tools.project import PACKAGES


def summary(statements: int, lines: int) -> dict[str, dict[str, int]]:
    """Return what a report of coverage has for one file."""
    return {"summary": {"num_statements": statements, "covered_lines": lines}}


def test_coverage_of_role_counts_statements_of_its_files_and_is_0_without() -> None:
    files = {
        "model/ternmq_model/a.py": summary(60, 50),
        "model/ternmq_model/deep/b.py": summary(20, 6),
        "store/ternmq_store/c.py": summary(10, 9),
    }
    found = reached(files)
    assert (found["model"], found["store"], found["broker"]) == (70.0, 90.0, 0.0)


def test_every_role_with_code_of_its_own_has_a_floor() -> None:
    # Contracts are generated.
    assert set(FLOORS) == set(PACKAGES) - {"protos"}
