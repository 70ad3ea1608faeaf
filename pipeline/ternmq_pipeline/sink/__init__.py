"""The sink: rows of Spark become messages, all of a batch or none."""
