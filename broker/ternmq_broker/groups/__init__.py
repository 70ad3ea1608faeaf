"""Consumer groups: sessions, members, offsets, locks, filters, and messages that come back."""
