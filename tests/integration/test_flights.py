"""Rows of the data set as messages."""

from flights import FLIGHTS, data_file, message_of, rows

ROW = {
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "dep_delay": "2",
    "arr_delay": "",
}


def test_flight_has_tag_keys_and_its_known_properties() -> None:
    message = message_of(ROW)
    assert (message.topic, message.tags, message.sharding_key) == ("flights", "UA", "N14228")
    assert list(message.keys) == ["N14228", "1545"]
    assert dict(message.properties) == {
        "origin": "EWR",
        "destination": "IAH",
        "departure_delay": "2",
    }


def test_flight_of_an_unknown_aircraft_has_no_sharding_key() -> None:
    message = message_of(ROW | {"tailnum": ""})
    assert (message.sharding_key, list(message.keys)) == ("", ["1545"])


def test_data_set_has_every_flight() -> None:
    assert sum(1 for _ in rows(data_file())) == FLIGHTS
