"""Columns of messages: the input of `send_columns`, encoded without an object for each row."""
