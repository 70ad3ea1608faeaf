import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.job_options import start_options


def test_edges_and_times_become_source_options() -> None:
    assert start_options("latest", option="start") == {"startingOffsets": "latest"}
    assert start_options("1795216147000", option="start") == {
        "startingTimestamp": "1795216147000",
        "startingOffsetsByTimestampStrategy": "latest",
    }


@pytest.mark.parametrize("start", ["", "soon", "-1", "1.5", "٣", "9" * 19])
def test_malformed_start_is_refused_by_name(start: str) -> None:
    with pytest.raises(UsageError, match="start="):
        start_options(start, option="start")
