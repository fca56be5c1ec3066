"""A baseline beside every score: what counting words and characters answers after seconds, on the
same rows (`fit_baseline`).

models.py has a model for each kind of output, features.py what they read, and scores.py joins them
to a task.
"""

from litebert.judge.baselines.models import Baseline as Baseline
from litebert.judge.baselines.scores import BaselineScores as BaselineScores
from litebert.judge.baselines.scores import FittedBaseline as FittedBaseline
from litebert.judge.baselines.scores import RunBaseline as RunBaseline
from litebert.judge.baselines.scores import advise as advise
from litebert.judge.baselines.scores import fit_baseline as fit_baseline
from litebert.judge.baselines.scores import read_baseline as read_baseline
from litebert.judge.baselines.scores import read_scores as read_scores
