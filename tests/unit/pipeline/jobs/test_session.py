from ternmq_pipeline.jobs.session import has_jvm


def test_jvm_of_a_program_or_its_spark_submit_is_recognized() -> None:
    assert has_jvm(object(), {})
    assert has_jvm(None, {"PYSPARK_GATEWAY_PORT": "41234"})
    assert not has_jvm(None, {"PATH": "/bin"})
