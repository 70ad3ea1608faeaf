from ternmq_broker.intake import Intake


def test_there_is_room_below_both_limits() -> None:
    intake = Intake(bytes_max=100, bytes_per_stream_max=40)
    assert intake.has_room(39)
    assert not intake.has_room(40)
    intake.took(100)
    assert not intake.has_room(0)
    intake.answered(1)
    assert intake.has_room(0)
    assert intake.bytes == 99


def test_who_waits_for_room_is_told_of_answers_until_it_stops() -> None:
    intake = Intake(bytes_max=100, bytes_per_stream_max=40)
    told: list[int] = []
    intake.watch("me", lambda: told.append(intake.bytes))
    intake.took(50)
    intake.answered(20)
    intake.unwatch("me")
    intake.unwatch("me")
    intake.answered(30)
    assert told == [30]
