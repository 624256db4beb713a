"""Run any loss block by block, without the matrix of scores.

``streamed`` is the public function; ``engine`` makes the passes over the ``blocks``; ``streams`` holds the row state
of each family of losses, and ``threshold`` that of soft top-k.
"""
