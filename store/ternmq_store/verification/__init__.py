"""Background verification of records, units and index entries in an open store."""
