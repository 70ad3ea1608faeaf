"""Roles of the members of a broker name: the record of each, the poll for epochs, the rules."""
