"""Sends: streams and single ones, from admission over validation to an answer that is safe."""
