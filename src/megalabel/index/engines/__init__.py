"""Indexes in engines that exist already: PostgreSQL with pgvector, and LanceDB."""

from megalabel.index.engines.index import ENGINES, EngineIndex, new_table
from megalabel.index.engines.table import LabelRow, LabelTable, NewTable, Place

__all__ = ["ENGINES", "EngineIndex", "LabelRow", "LabelTable", "NewTable", "Place", "new_table"]
