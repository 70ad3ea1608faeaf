from ternmq_broker.storage.admission import Admission


def test_admission_has_space_below_both_limits() -> None:
    admission = Admission(bytes_max=100, bytes_per_stream_max=40)
    assert admission.has_capacity(39)
    assert not admission.has_capacity(40)
    admission.took(100)
    assert not admission.has_capacity(0)
    admission.answered(1)
    assert admission.has_capacity(0)
    assert admission.bytes == 99


def test_watchers_of_admission_are_notified_until_they_stop() -> None:
    admission = Admission(bytes_max=100, bytes_per_stream_max=40)
    told: list[int] = []
    admission.watch("me", lambda: told.append(admission.bytes))
    admission.took(50)
    admission.answered(20)
    admission.unwatch("me")
    admission.unwatch("me")
    admission.answered(30)
    assert told == [30]


def test_admission_is_idle_once_streams_and_calls_that_store_are_answered() -> None:
    admission = Admission(bytes_max=10, bytes_per_stream_max=10)
    looks: list[bool] = []
    admission.watch("drain", lambda: looks.append(admission.is_idle))
    admission.took(1)
    with admission.storing():
        admission.answered(1)
    assert looks == [False, True]
