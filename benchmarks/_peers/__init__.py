"""Other systems, each run by a small script inside an environment of its own."""
