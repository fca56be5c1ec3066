"""Train, tune, explain and save a classifier of texts, for those who know scikit-learn.

python examples/ten_lines.py MODEL TRAIN.csv    # the table has the columns text and team
"""

import sys

import pandas
from sklearn.model_selection import GridSearchCV

import litebert
from litebert.sklearn import TextClassifier

table = pandas.read_csv(sys.argv[2])
search = GridSearchCV(TextClassifier(sys.argv[1], out="fits"), {"epochs": [2, 4]}, cv=2)
search.fit(table["text"], table["team"])
best = search.best_estimator_
sys.stdout.write(f"{search.best_params_}, accuracy {search.best_score_:.2f}\n")
explanation = litebert.load(best.folder_).explain(list(table["text"][:1]))[0]
sys.stdout.write(f"{explanation}\n")
litebert.convert(best.folder_, "saved", to="litebert")
sys.stdout.write(f"{litebert.load('saved').predict(list(table['text'][:1]))[0]['prediction']}\n")
