"""A baseline beside every score: what counting words and characters answers after seconds, on the
same rows.

    from litebert.finetuning.baselines import fit_baseline

    baseline = fit_baseline(files.task, files.read("train"))
    baseline.scores_of([("dev", files.read("dev"))])  # {'accuracy': 0.7625, ...}, as the task says
    baseline.predict(["a text", "another"])           # as a fine-tuned model answers
    baseline.logits(examples)                         # what a teacher says

    score_baseline(files).scores                      # of all development and test parts

models.py has a model for each kind of output, and features.py the features that they read.
scores.py joins them to a task, and has the scores in a run folder.
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
