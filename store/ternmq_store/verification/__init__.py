"""The background verification: records, units and index entries are compared while all goes on."""
