"""Consumer groups: sessions, members, offsets, locks, filters, and messages that are sent back."""
