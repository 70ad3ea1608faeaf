"""Offsets of a group: where they are stored, how they are looked up, and where consuming begins."""
