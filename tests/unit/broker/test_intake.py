from ternmq_broker.intake import Intake


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
