"""Retries that do not duplicate: finding out what was stored before it is stored again."""
