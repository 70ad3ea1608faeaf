from tools.check_coverage import FLOORS, reached
from tools.project import PACKAGES


def summary(statements: int, lines: int, branches: int, taken: int) -> dict[str, dict[str, int]]:
    """Return what a report of coverage has for one file."""
    return {
        "summary": {
            "num_statements": statements,
            "covered_lines": lines,
            "num_branches": branches,
            "covered_branches": taken,
        }
    }


def test_coverage_of_role_counts_statements_and_branches_of_its_files_and_is_0_without() -> None:
    files = {
        "model/ternmq_model/a.py": summary(60, 60, 20, 10),
        "model/ternmq_model/deep/b.py": summary(15, 0, 5, 0),
        "store/ternmq_store/c.py": summary(10, 9, 0, 0),
    }
    found = reached(files)
    assert (found["model"], found["store"], found["broker"]) == (70.0, 90.0, 0.0)


def test_every_role_with_code_of_its_own_has_a_floor() -> None:
    # Contracts are generated.
    assert set(FLOORS) == set(PACKAGES) - {"protos"}
