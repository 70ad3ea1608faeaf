"""The version of every part: one distribution ships them all."""

__version__ = "0.1.0"
