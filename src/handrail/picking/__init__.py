"""Picking: which tools of a large catalogue one request needs.

`pick_tools` is the way in; `ToolIndex` is for those who keep the index themselves and want the scores. `split_words`,
`stem` and `telling_words` are how it reads text, for those who rank something else.
"""

from __future__ import annotations

from handrail.picking.embedding_index import EmbedsTexts
from handrail.picking.index import RankedTool, Scorer, ToolIndex
from handrail.picking.pick import pick_tools
from handrail.picking.word_splitting import split_words, stem, telling_words

__all__ = ["EmbedsTexts", "RankedTool", "Scorer", "ToolIndex", "pick_tools", "split_words", "stem", "telling_words"]
