"""A baseline beside every score: what counting words and characters answers after seconds, on the
same rows (`fit_baseline`, `score_baseline`).

models.py has a model for each kind of output, features.py what they read, and scores.py joins them
to a task.
"""

from litebert.finetuning.baselines.models import Baseline as Baseline
from litebert.finetuning.baselines.scores import BaselineScores as BaselineScores
from litebert.finetuning.baselines.scores import FittedBaseline as FittedBaseline
from litebert.finetuning.baselines.scores import RunBaseline as RunBaseline
from litebert.finetuning.baselines.scores import advise as advise
from litebert.finetuning.baselines.scores import fit_baseline as fit_baseline
from litebert.finetuning.baselines.scores import read_baseline as read_baseline
from litebert.finetuning.baselines.scores import read_scores as read_scores
from litebert.finetuning.baselines.scores import score_baseline as score_baseline
