"""Estimators of scikit-learn: texts in, and classes, numbers or vectors out.

They take lists, arrays, and columns of pandas, polars and Arrow, and work in pipelines,
cross-validation and searches. Each `fit` is a run of `litebert.fit`, or of fine-tuning, in a folder
of its own.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import signal
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

import litebert
from litebert.base.errors import ConfigError, DataError, RunError
from litebert.base.storage import atomic_text
from litebert.config import replace
from litebert.text.records import Notes, clean, format_value, list_values

if TYPE_CHECKING:
    from litebert.answer.model import Model
    from litebert.config.finetuning import FinetuneConfig
    from litebert.fitting.methods import MethodName

log = logging.getLogger("litebert")

_KINDS: dict[str, tuple[Any, str]] = {
    "model": ((str, Path, type(None)), "a folder or a name"),
    "out": ((str, Path, type(None)), "a folder"),
    "tokenizer": ((str, Path, type(None)), "a folder or a file"),
    "epochs": ((int, float, type(None)), "a number"),
    "learning_rate": ((int, float, type(None)), "a number"),
    "batch_size": ((int, type(None)), "a whole number"),
    "max_length": ((int, type(None)), "a whole number"),
    "metric": ((str, type(None)), "a name"),
    "random_state": (int, "a whole number"),
    "device": (str, "a name"),
    "methods": ((list, tuple), "a list of names"),
    "budget": ((str, type(None)), "a time such as 10m"),
}
"""The types that a parameter may have, and how a message calls them."""
_TRAINING = ("tokenizer", "epochs", "learning_rate", "batch_size", "max_length", "metric")
"""Parameters of fine-tuning: where one is given, no other method is tried."""
_fits: defaultdict[Path, Lock] = defaultdict(Lock)
"""Held while a fit writes into its folder, so that one in another thread finds it done."""


class _TextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    target: ClassVar[str]

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        out: str | Path | None = None,
        methods: Sequence[MethodName] = (),
        budget: str | None = None,
        tokenizer: str | Path | None = None,
        epochs: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        metric: str | None = None,
        random_state: int = 0,
        device: str = "auto",
    ) -> None:
        """Keep the parameters; `fit` checks them.

        `fit` tries several methods, as `litebert.fit` does. With a parameter of training
        (`tokenizer`, `epochs`, `learning_rate`, `batch_size`, `max_length`, `metric`) or with
        weights, it fine-tunes the network, and a tenth of the rows chooses the best weights.

        Args:
            model: a run, a litebert or Hugging Face folder, or the name of a model of the Hub such
                as `hf:albert/albert-base-v2`; or a recipe's name, with `tokenizer`. By default the
                encoder that `litebert.fit` takes for such texts.
            out: the folder in which each `fit` makes a folder of its own, named by its rows and
                parameters: so a repeated or interrupted `fit` continues. By default a temporary
                folder, which is deleted with the estimator, or after its next fit.
            methods: the methods to try, by default those that suit so many rows.
            budget: the time for all of them, by default 10m.
            tokenizer: a tokenizer, where `model` has none.
            epochs, learning_rate, batch_size (sequences), max_length (tokens): by default each run
                chooses them from the model and its rows.
            metric: the score on the held-out rows that chooses the weights: accuracy (the default),
                macro_f1 or matthews of classes, r2 (the default), pearson or spearman of numbers.
            random_state: the seed of the weights and of the order of the rows.
            device: the device to train and to answer on.
        """
        self.model, self.out, self.tokenizer = model, out, tokenizer
        self.methods, self.budget = methods, budget
        self.epochs, self.learning_rate = epochs, learning_rate
        self.batch_size, self.max_length, self.metric = batch_size, max_length, metric
        self.random_state, self.device = random_state, device

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Learn from N texts, or pairs of texts, and their N targets.

        Args:
            sample_weight: the weight of each row in the loss of fine-tuning, (N,), 0 or more; the
                scores on the rows held out count all alike.

        Raises:
            DataError: a text or a target cannot be used, or they are not as many.
            ConfigError: a parameter cannot be used.
            ModelError: the model cannot be opened.
            KeyboardInterrupt: Ctrl-C; with `out`, the same fit starts over, or continues where it
                fine-tunes.
        """
        texts, values = list_texts(X), list(list_values(y, "y"))
        if len(texts) != len(values):
            raise DataError(f"there are {len(texts)} texts and {len(values)} targets; give as many")
        weights = None
        if sample_weight is not None:
            weights = [
                float(weight) if isinstance(weight, (int, float, np.number)) else -1.0
                for weight in list_values(sample_weight, "sample_weight")
            ]
            if len(weights) != len(texts) or not all(0 <= weight < np.inf for weight in weights):
                raise DataError(
                    f"sample_weight is for {len(texts)} texts; give as many numbers of 0 or more"
                )
        targets, facts = self._encode_targets(values)
        if not texts:
            raise DataError("X is empty; give texts to learn from")
        folder = self._make_folder(texts, targets, weights)
        remove: weakref.finalize[..., Any] | None = None
        if self.out is None:
            remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        table = folder / "rows.jsonl"
        with _fits[folder]:
            _write_rows(table, texts, targets, weights)
            columns: dict[str, Any] = {}
            budget: dict[str, Any] = {} if self.budget is None else {"budget": self.budget}
            if isinstance(texts[0], tuple):
                columns["pair_column"] = "pair"
            if weights is not None or self._is_trained():
                if weights is not None:
                    columns["weight_column"] = "weight"
                self._finetune(texts, table, columns, facts)
            else:
                fitted = litebert.fit(
                    table,
                    folder / "run",
                    model=self.model,
                    methods=self.methods,
                    device=self.device,
                    seed=int(self.random_state),
                    text_column="text",
                    label_column="label",
                    target=self.target,
                    **budget,
                    **columns,
                )
                if fitted.interrupted:
                    shutil.rmtree(folder / "run")  # a search must not take the best so far
                    raise KeyboardInterrupt
        # After this fit is done, so that one that fails leaves the model of the one before.
        self.folder_ = folder / "run"
        for name, value in facts.items():
            setattr(self, name, value)
        self.__dict__.pop("_opened", None)
        if (remove_earlier := self.__dict__.pop("_remove_temporary", None)) is not None:
            remove_earlier()
        if remove is not None:
            self._remove_temporary = remove
        return self

    def _is_trained(self) -> bool:
        return any(getattr(self, name) is not None for name in _TRAINING)

    def _finetune(
        self,
        texts: Sequence[Any],
        table: Path,
        columns: Mapping[str, str],
        facts: dict[str, Any],
    ) -> None:
        from litebert.finetuning.run import finetune
        from litebert.fitting.encoders import find_encoder
        from litebert.tasks.registry import open_task
        from litebert.tasks.texts import Example

        for name in ("methods", "budget"):
            if getattr(self, name) not in (None, (), []):
                raise ConfigError(
                    f"{name} is for a choice among methods, and a parameter or weights ask for "
                    "fine-tuning; leave one out"
                )
        files = open_task("table", table, target=self.target, metric=self.metric, **columns)
        model = self.model
        if model is None:
            examples = [Example(*((text,) if isinstance(text, str) else text)) for text in texts]
            model, note = find_encoder(examples)
            log.info(note)
        run = finetune(
            model,
            files,
            table.with_name("run"),
            lambda default: self._change_config(default, facts),
            tokenizer=self.tokenizer,
            device=self.device,
        )
        if run.outcome.signal is not None:  # the run has saved itself, and the caller must hear it
            signal.raise_signal(run.outcome.signal)
        if not run.outcome.finished:
            raise RunError(f"the fit in {table.parent} was interrupted; repeat it to continue")

    @property
    def model_(self) -> Model:
        """The trained model, as `litebert.load` opens it."""
        from litebert.answer.model import load

        check_is_fitted(self, "folder_")
        if "_opened" not in self.__dict__:
            for name, content in self.__dict__.pop("_files", {}).items():
                (self.folder_ / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder_ / name).write_bytes(content)
            self._opened = load(self.folder_, device=self.device)
        opened: Model = self._opened
        return opened

    def _answer(self, X: Any) -> list[dict[str, Any]]:
        check_is_fitted(self, "folder_")
        texts = list_texts(X)
        return self.model_.predict(texts) if texts else []

    def _encode_targets(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The targets as the run reads them, and the attributes that a fit with them sets."""
        raise NotImplementedError

    def _make_folder(self, *rows: Sequence[Any] | None) -> Path:
        """Make the folder of a fit, whose name is a hash of its rows and parameters."""
        parameters = self._list_parameters()
        if self.out is None:
            return Path(tempfile.mkdtemp(prefix="litebert-"))
        del parameters["out"]
        content = json.dumps([parameters, *filter(None, rows)], default=str)
        folder = Path(self.out) / hashlib.sha256(content.encode()).hexdigest()[:16]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # a NUL
            raise ConfigError(f"out is {self.out!r}, which cannot be made: {error}") from None
        return folder

    def _list_parameters(self) -> dict[str, Any]:
        # A search over an array gives numbers of numpy, which no JSON holds.
        parameters = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
        }
        for name, (kinds, words) in _KINDS.items():
            if not isinstance(parameters[name], kinds):
                raise ConfigError(f"{name} is {format_value(parameters[name])}; give {words}")
        return parameters

    def _change_config(self, config: FinetuneConfig, facts: dict[str, Any]) -> FinetuneConfig:
        """The default config with the parameters that are set; `facts` are those of a fit."""
        parameters = self._list_parameters()
        train = replace(config.train, seed=parameters["random_state"])
        if (batch_size := parameters["batch_size"]) is not None:
            train = replace(train, batch=f"{batch_size} sequences")
        if (rate := parameters["learning_rate"]) is not None:
            train = replace(train, optimizer=replace(train.optimizer, learning_rate=rate))
        config = replace(config, train=train)
        if parameters["epochs"] is not None:
            config = replace(config, epochs=parameters["epochs"])
        if parameters["max_length"] is not None:
            config = replace(config, length=parameters["max_length"])
        return config

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the parameters, and the model's folder or temporary files."""
        state = dict(super().__getstate__())
        state.pop("_opened", None)
        if state.pop("_remove_temporary", None) is not None and "_files" not in state:
            run: Path = self.folder_  # and none of its checkpoints
            files = [*run.glob("*.json*"), *filter(Path.is_file, run.glob("model/**/*"))]
            state["_files"] = {str(path.relative_to(run)): path.read_bytes() for path in files}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the parameters, and a temporary folder for the files of a fitted model."""
        super().__setstate__(state)
        if "_files" in state:
            folder = Path(tempfile.mkdtemp(prefix="litebert-"))
            self._remove_temporary = weakref.finalize(
                self, shutil.rmtree, folder, ignore_errors=True
            )
            self.folder_ = folder / "run"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.input_tags.one_d_array, tags.target_tags.required = True, True
        return tags


class TextClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """A classifier of texts, or of pairs of texts.

    After `fit`, `classes_` holds the sorted classes as they were given, `folder_` the run folder,
    and `model_` the opened model.
    """

    target = "class"

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        out: str | Path | None = None,
        methods: Sequence[MethodName] = (),
        budget: str | None = None,
        tokenizer: str | Path | None = None,
        epochs: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        metric: str | None = None,
        random_state: int = 0,
        device: str = "auto",
    ) -> None:
        """Keep the parameters; `fit` checks them. The others are as in `TextRegressor`.

        Args:
            class_weight: the weights of classes in the loss. None: all are 1. balanced: rows /
                (classes * rows of the class). Else the weights by class; the other classes weigh 1.
        """
        super().__init__(
            model,
            out=out,
            methods=methods,
            budget=budget,
            tokenizer=tokenizer,
            epochs=epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            max_length=max_length,
            metric=metric,
            random_state=random_state,
            device=device,
        )
        self.class_weight = class_weight

    def _is_trained(self) -> bool:
        return self.class_weight is not None or super()._is_trained()

    def _list_parameters(self) -> dict[str, Any]:
        parameters, weights = super()._list_parameters(), self.class_weight
        if isinstance(weights, Mapping):
            try:
                parameters["class_weight"] = [[str(key), float(weights[key])] for key in weights]
            except (TypeError, ValueError, OverflowError):
                words = format_value(dict(weights))
                raise ConfigError(f"class_weight is {words}; give numbers by class") from None
        elif not (weights is None or (isinstance(weights, str) and weights == "balanced")):
            raise ConfigError(
                f"class_weight is {format_value(weights)}; give balanced or a dictionary"
            )
        return parameters

    def _change_config(self, config: FinetuneConfig, facts: dict[str, Any]) -> FinetuneConfig:
        config = super()._change_config(config, facts)
        if self.class_weight is None:
            return config
        if not isinstance(self.class_weight, Mapping):
            return replace(config, class_weights="balanced")
        name_of = dict(zip(facts["classes_"].tolist(), facts["_names"], strict=True))
        for value in self.class_weight:
            if value not in name_of:
                raise ConfigError(
                    f"class_weight has {format_value(value)}, which is no class of y; leave it out"
                )
        weights = {name_of[value]: float(weight) for value, weight in self.class_weight.items()}
        return replace(config, class_weights=weights)

    def _encode_targets(self, values: Sequence[Any]) -> tuple[list[str], dict[str, Any]]:
        classes, names = name_classes(values)
        name_of = dict(zip(classes.tolist(), names, strict=True))
        facts = {"classes_": classes, "_names": {name: i for i, name in enumerate(names)}}
        return [name_of[value] for value in np.asarray(values).tolist()], facts

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities (N, C) of the classes, in the order of `classes_`."""
        answers = self._answer(X)
        rows = np.zeros((len(answers), len(self._names)))
        for number, answer in enumerate(answers):
            for name, probability in answer["probabilities"].items():
                rows[number, self._names[name]] = probability
        shares: NDArray[np.float64] = rows / np.maximum(rows.sum(1, keepdims=True), 1e-300)
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each text, (N,)."""
        answers = self._answer(X)
        chosen = [self._names[answer["prediction"]] for answer in answers]
        predicted: NDArray[Any] = self.classes_[np.array(chosen, int)]
        return predicted


class TextRegressor(RegressorMixin, _TextEstimator):  # type: ignore[misc]
    """A regressor: a number for a text, or for a pair of texts.

    After `fit`, `folder_` holds the run folder, and `model_` the opened model.
    """

    target = "number"

    def _encode_targets(self, values: Sequence[Any]) -> tuple[list[float], dict[str, Any]]:
        return list_numbers(values), {}

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the number of each text, (N,)."""
        return np.array([answer["prediction"] for answer in self._answer(X)], np.float64)


class TextVectorizer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Sentence vectors of a model, for pipelines whose next step reads numbers."""

    def __init__(self, model: str | Path, *, device: str = "auto") -> None:
        """Keep the parameters.

        Args:
            model: as `litebert.load` takes it.
            device: the device to compute on.
        """
        self.model, self.device = model, device

    def fit(self, X: Any = None, y: Any = None) -> TextVectorizer:
        """Open the model; nothing is learned."""
        from litebert.answer.model import load

        self.model_ = load(self.model, device=self.device)
        return self

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.sentence_encoder.width)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the vectors of N texts, (N, D)."""
        check_is_fitted(self, "model_")
        vectors: NDArray[np.float32] = self.model_.encode(list_texts(X, pairs=False))
        return vectors

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the parameters, and that a model was open."""
        state = dict(super().__getstate__())
        return state | {"model_": None} if "model_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the model again, if one was open."""
        super().__setstate__(state)
        if "model_" in state:
            self.fit()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


def _write_rows(
    file: Path, texts: Sequence[Any], targets: Sequence[Any], weights: Sequence[float] | None
) -> None:
    names = ("text", "pair")
    with atomic_text(file) as output:
        for number, (text, target) in enumerate(zip(texts, targets, strict=True)):
            columns = dict(zip(names, (text,) if isinstance(text, str) else text, strict=False))
            if weights is not None:
                columns["weight"] = weights[number]
            row = json.dumps({**columns, "label": target})  # ASCII, for broken characters
            output.write(row + "\n")


def list_texts(values: Any, pairs: bool = True) -> list[Any]:
    """List texts, or pairs of texts as tuples, of what `list_values` takes."""
    texts: list[Any] = []
    for number, value in enumerate(list_values(values, "X")):
        if isinstance(value, str):
            texts.append(str(value))  # of numpy's own kind, too
        elif (
            pairs
            and isinstance(value, (list, tuple, np.ndarray))
            and len(value) == 2
            and all(isinstance(text, str) for text in value)
        ):
            texts.append(tuple(map(str, value)))
        else:
            raise DataError(f"X[{number}] is {format_value(value)}; give a text")
    if len({type(text) for text in texts}) > 1:
        raise DataError("X has single texts and pairs; give one or the other")
    return texts


def name_classes(values: Sequence[Any]) -> tuple[NDArray[Any], list[str]]:
    """Return the sorted classes (C,) of targets, and the name of each in the run."""
    for row, value in enumerate(values):
        if not _is_class(value):
            raise DataError(f"y[{row}] is {format_value(value)}; give a class")
    if len({isinstance(value, str) for value in values}) > 1:
        raise DataError("y has texts and numbers; give one or the other")
    classes: NDArray[Any] = np.unique(np.asarray(values))
    # A table cleans and strips its labels.
    names = [clean(str(value), Notes()).strip() for value in classes.tolist()]
    if len(names) < 2:
        raise DataError(f"all targets are {names or 'missing'}; give two classes or more")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(f"several classes have the name '{repeated[0]}'; give them different ones")
    return classes, names


def _is_class(value: Any) -> bool:
    """Return True if a target is text or a number: not missing, blank or of broken characters."""
    if not isinstance(value, (str, int, float, np.generic)) or value != value:  # a NaN
        return False
    name = str(value)
    is_blank = not clean(name, Notes()).strip()
    return not is_blank and name == name.encode("utf-8", "ignore").decode("utf-8")


def list_numbers(values: Sequence[Any]) -> list[float]:
    """List targets as finite numbers."""
    numbers = list[float]()
    for row, value in enumerate(values):
        try:
            numbers.append(float(value))
        except (TypeError, ValueError, OverflowError):
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise DataError(f"y[{row}] is {format_value(value)}; give a number")
    return numbers
