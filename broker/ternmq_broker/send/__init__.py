"""Sends: streams and single messages, from admission to an answer that is safe."""
