from pathlib import Path

import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.folders.hadoop_folder import location_of


def test_place_is_a_uri_or_an_absolute_path() -> None:
    assert location_of("s3a://lake/x", option="folder") == "s3a://lake/x"
    assert location_of("s3a://lake/x/", option="folder") == "s3a://lake/x"
    assert location_of("x/y/", option="folder") == str(Path.cwd() / "x" / "y")
    for wrong in ("", "a\0b"):
        with pytest.raises(UsageError, match="folder="):
            location_of(wrong, option="folder")
