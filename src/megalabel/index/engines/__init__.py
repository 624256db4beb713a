"""Indexes in engines that exist already: PostgreSQL with pgvector, and LanceDB."""

from megalabel.index.engines.index import ENGINES, EngineIndex, all_settings, new_table
from megalabel.index.engines.table import LabelRow, LabelTable, NewTable, Place

__all__ = ["ENGINES", "EngineIndex", "LabelRow", "LabelTable", "NewTable", "Place", "all_settings", "new_table"]
