"""Time of a test's cluster: real until a test freezes or moves it."""
