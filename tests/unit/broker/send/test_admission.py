from ternmq_broker.send.admission import Intake


def test_admission_has_space_below_both_limits() -> None:
    intake = Intake(bytes_max=100, bytes_per_stream_max=40)
    assert intake.has_room(39)
    assert not intake.has_room(40)
    intake.took(100)
    assert not intake.has_room(0)
    intake.answered(1)
    assert intake.has_room(0)
    assert intake.bytes == 99


def test_watchers_of_admission_are_notified_until_they_stop() -> None:
    intake = Intake(bytes_max=100, bytes_per_stream_max=40)
    told: list[int] = []
    intake.watch("me", lambda: told.append(intake.bytes))
    intake.took(50)
    intake.answered(20)
    intake.unwatch("me")
    intake.unwatch("me")
    intake.answered(30)
    assert told == [30]


def test_intake_is_idle_once_streams_and_calls_that_store_are_answered() -> None:
    intake = Intake(bytes_max=10, bytes_per_stream_max=10)
    looks: list[bool] = []
    intake.watch("drain", lambda: looks.append(intake.is_idle))
    intake.took(1)
    with intake.storing():
        intake.answered(1)
    assert looks == [False, True]
