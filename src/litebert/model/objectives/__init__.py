"""The objectives of pretraining, one a file, each registered by name in `registry.OBJECTIVES`;
importing them loads no torch, so that a config can be checked without it.

An objective of your own is a subclass of `Objective` and a line, `OBJECTIVES.add("mine", Mine)`.
"""

from litebert.model.objectives.objective import Classification as Classification
from litebert.model.objectives.objective import Context as Context
from litebert.model.objectives.objective import Curves as Curves
from litebert.model.objectives.objective import Loss as Loss
from litebert.model.objectives.objective import Objective as Objective
from litebert.model.objectives.objective import Score as Score
from litebert.model.objectives.objective import ShownScore as ShownScore
from litebert.model.objectives.objective import list_shown_scores as list_shown_scores
from litebert.model.objectives.objective import score_rows as score_rows
