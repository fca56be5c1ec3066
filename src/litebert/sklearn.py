"""Estimators of scikit-learn: texts in, and classes, numbers or vectors out.

They take lists, arrays, and columns of pandas, polars and Arrow, and work in pipelines,
cross-validation and searches. Each `fit` is a run of fine-tuning in a folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import signal
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from litebert.config import replace
from litebert.errors import ConfigError, DataError, RunError
from litebert.text.records import format_value

if TYPE_CHECKING:
    from litebert.answer.model import Model
    from litebert.config.finetuning import FinetuneConfig
    from litebert.finetuning.task import TaskFiles

_CHOICE_OF = {"epochs": "epochs", "batch_size": "batch", "max_length": "length"}
"""The choice of a run that each parameter makes, where it has the name of no other."""


_NUMBERS: tuple[tuple[str, Any, str], ...] = (
    ("epochs", (int, float), "a number"),
    ("learning_rate", (int, float), "a number"),
    ("batch_size", int, "a whole number"),
    ("max_length", int, "a whole number"),
    ("random_state", int, "a whole number"),
)
"""The parameters that are numbers: the types that each may have, and how a message calls them."""


class _TextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A fine-tuned model behind the methods of scikit-learn."""

    target: ClassVar[str]

    def __init__(
        self,
        model: str | Path,
        *,
        out: str | Path | None = None,
        tokenizer: str | Path | None = None,
        epochs: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        random_state: int = 0,
        device: str = "auto",
    ) -> None:
        """Keep the parameters; `fit` checks them.

        Args:
            model: a run, a litebert or Hugging Face folder, or the name of a model of the Hub such
                as `hf:albert/albert-base-v2`; or a recipe's name, with `tokenizer`.
            out: the folder in which each `fit` makes a folder of its own, named by its rows and
                parameters: so a repeated or interrupted `fit` continues. By default a temporary
                folder, which is deleted with the estimator, or after its next fit.
            tokenizer: a tokenizer, where `model` has none.
            epochs, learning_rate, batch_size (sequences), max_length (tokens): by default each run
                chooses them from the model and its rows.
            random_state: the seed of the weights and of the order of the rows.
            device: the device to train and to answer on.
        """
        self.model, self.out, self.tokenizer = model, out, tokenizer
        self.epochs, self.learning_rate = epochs, learning_rate
        self.batch_size, self.max_length = batch_size, max_length
        self.random_state, self.device = random_state, device

    def fit(self, X: Any, y: Any) -> Any:
        """Fine-tune the model on N texts, or pairs of texts, and their N targets.

        A tenth of the rows is held out to choose the best weights.

        Raises:
            DataError: a text or a target cannot be used, or they are not as many.
            ConfigError: a parameter cannot be used.
            ModelError: the model cannot be opened.
            KeyboardInterrupt: Ctrl-C; with `out`, the same fit continues.
        """
        from litebert.finetuning.run import finetune
        from litebert.tasks.registry import open_task

        texts, values = list_texts(X), list_targets(y)
        if len(texts) != len(values):
            raise DataError(f"there are {len(texts)} texts and {len(values)} targets; give as many")
        targets = self._encode_targets(values)
        if not texts:
            raise DataError("X is empty; give texts to learn from")
        folder = self._make_folder(texts, targets)
        remove: weakref.finalize[..., Any] | None = None
        if self.out is None:
            remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        table = folder / "rows.jsonl"
        _write_rows(table, texts, targets)
        pair = {"pair": "pair"} if isinstance(texts[0], tuple) else {}
        files = open_task("table", table, target=self.target, **pair)
        run = finetune(
            self.model,
            files,
            folder / "run",
            self._make_config(files),
            tokenizer=self.tokenizer,
            device=self.device,
            baseline=False,
        )
        if run.outcome.signal is not None:  # the run has saved itself, and the caller must hear it
            signal.raise_signal(run.outcome.signal)
        if not run.outcome.finished:
            raise RunError(f"the fit in {folder} was interrupted; repeat it to continue")
        self.folder_ = folder / "run"
        self.__dict__.pop("_opened", None)
        # After this fit is done, so that one that fails leaves the model of the one before.
        if (remove_earlier := self.__dict__.pop("_remove_temporary", None)) is not None:
            remove_earlier()
        if remove is not None:
            self._remove_temporary = remove
        return self

    @property
    def model_(self) -> Model:
        """The fine-tuned model, as `litebert.load` opens it."""
        from litebert.answer.model import load

        self._require_fitted()
        if "_opened" not in self.__dict__:
            self._opened = load(self.folder_, device=self.device)
        opened: Model = self._opened
        return opened

    def _answer(self, X: Any) -> list[dict[str, Any]]:
        self._require_fitted()
        texts = list_texts(X)
        return self.model_.predict(texts) if texts else []

    def _require_fitted(self) -> None:
        check_is_fitted(self, "folder_")

    def _encode_targets(self, values: Sequence[Any]) -> list[Any]:
        raise NotImplementedError

    def _make_folder(self, texts: Sequence[Any], targets: Sequence[Any]) -> Path:
        """Make the folder of a fit, whose name is a hash of its rows and parameters."""
        if self.out is None:
            return Path(tempfile.mkdtemp(prefix="litebert-"))
        parameters = self._list_parameters()
        del parameters["out"]
        content = json.dumps([parameters, texts, targets], default=str)
        folder = Path(self.out) / hashlib.sha256(content.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _list_parameters(self) -> dict[str, Any]:
        """Return the parameters; a search over an array gives numbers of numpy, which no JSON
        holds.

        Raises:
            ConfigError: one is no number, or no whole number.
        """
        parameters = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
        }
        for name, kind, words in _NUMBERS:
            value = parameters[name]
            is_chosen_later = value is None and name != "random_state"
            if not is_chosen_later and not isinstance(value, kind):
                raise ConfigError(f"{name} is {format_value(value)}; give {words}")
        return parameters

    def _make_config(self, files: TaskFiles[Any]) -> FinetuneConfig:
        """Make the config: a run's own choices, but for the parameters that are set."""
        from litebert.finetuning.initial import load_initial
        from litebert.recipes.finetuning import choose_default_recipe

        start = load_initial(self.model, self.tokenizer, files.task)
        config = choose_default_recipe(start.encoder, start.dense, files.task.point)
        parameters = self._list_parameters()
        rate, batch_size = parameters["learning_rate"], parameters["batch_size"]
        made = {_CHOICE_OF[name] for name in _CHOICE_OF if parameters[name] is not None}
        made |= {"rate"} if rate is not None else set()
        train = replace(config.train, seed=parameters["random_state"])
        if batch_size is not None:
            train = replace(train, batch=f"{batch_size} sequences")
        if rate is not None:
            train = replace(train, optimizer=replace(train.optimizer, learning_rate=rate))
        config = replace(
            config,
            choose=tuple(choice for choice in config.choose if choice not in made),
            train=train,
        )
        if parameters["epochs"] is not None:
            config = replace(config, epochs=parameters["epochs"])
        if parameters["max_length"] is not None:
            config = replace(config, length=parameters["max_length"])
        return config

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the parameters, and the folder of the fitted model.

        Raises:
            DataError: the folder is a temporary one, which is deleted with the estimator.
        """
        state = dict(super().__getstate__())
        if "_remove_temporary" in state:
            raise DataError(
                "the fitted model lies in a temporary folder, which a pickle or a copy cannot "
                "name; fit with out=FOLDER"
            )
        state.pop("_opened", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.input_tags.one_d_array, tags.target_tags.required = True, True
        tags.non_deterministic = False
        return tags


class TextClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """A classifier of texts, or of pairs of texts.

    After `fit`, `classes_` holds the sorted classes as they were given, `folder_` the run folder,
    and `model_` the opened model.
    """

    target = "class"

    def fit(self, X: Any, y: Any) -> TextClassifier:
        """Fine-tune the model on N texts, or pairs of texts, and their N classes; see
        `_TextEstimator.fit`.
        """
        values = list_targets(y)
        super().fit(X, values)
        # Only now, so that a fit that fails leaves the classes of the one before.
        self.classes_, names = _name_classes(values)
        self._names = {name: number for number, name in enumerate(names)}
        return self

    def _encode_targets(self, values: Sequence[Any]) -> list[str]:
        classes, names = _name_classes(values)
        name_of = dict(zip(classes.tolist(), names, strict=True))
        return [name_of[value] for value in np.asarray(values).tolist()]

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

    def _encode_targets(self, values: Sequence[Any]) -> list[float]:
        numbers = list[float]()
        for row, value in enumerate(values):
            try:
                numbers.append(float(value))
            except (TypeError, ValueError):
                numbers.append(math.nan)
            if not math.isfinite(numbers[-1]):
                raise DataError(f"y[{row}] is {format_value(value)}; give a number")
        return numbers

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the number of each text, (N,)."""
        return np.array([answer["prediction"] for answer in self._answer(X)], np.float64)


class TextVectorizer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
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

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the vectors of N texts, (N, H)."""
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
        tags.requires_fit = True
        return tags


def list_values(column: Any) -> list[Any]:
    """List the values of a list, an array, or a column of pandas, polars or Arrow."""
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    return list(column.tolist() if hasattr(column, "tolist") else column)


def list_targets(column: Any) -> list[Any]:
    """List the targets of what `list_values` takes.

    Raises:
        DataError: it is no column, or has no targets.
    """
    if hasattr(column, "columns"):
        raise DataError("y is a table; give one column of it")
    if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
        raise DataError(f"y is {format_value(column)}; give a list of targets")
    return list_values(column)


def list_texts(values: Any, pairs: bool = True) -> list[Any]:
    """List texts, or pairs of texts as tuples, of what `list_values` takes.

    Raises:
        DataError: it is a single text, or a value is no text and no pair of texts.
    """
    if hasattr(values, "columns"):
        raise DataError("X is a table; give one column of it, or a list of pairs of texts")
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DataError(f"X is {format_value(values)}; give a list of texts")
    texts: list[Any] = []
    for number, value in enumerate(list_values(values)):
        if isinstance(value, str):
            texts.append(str(value))  # of numpy's own kind, too
        elif pairs and _is_pair(value):
            texts.append(tuple(map(str, value)))
        else:
            raise DataError(f"X[{number}] is {format_value(value)}; give a text")
    if len({type(text) for text in texts}) > 1:
        raise DataError("X has single texts and pairs; give one or the other")
    return texts


def _is_pair(value: Any) -> bool:
    is_sequence = isinstance(value, (list, tuple, np.ndarray))
    return is_sequence and len(value) == 2 and all(isinstance(text, str) for text in value)


def _name_classes(values: Sequence[Any]) -> tuple[NDArray[Any], list[str]]:
    """Return the sorted classes (C,) of targets, and the name of each in the run.

    Raises:
        DataError: a target is no class, texts and numbers are mixed, there is one class only, or
            two classes have one name.
    """
    for row, value in enumerate(values):
        if not _is_class(value):
            raise DataError(f"y[{row}] is {format_value(value)}; give a class")
    if len({isinstance(value, str) for value in values}) > 1:
        raise DataError("y has texts and numbers; give one or the other")
    classes: NDArray[Any] = np.unique(np.asarray(values))
    # A table strips its labels.
    names = [str(value).strip() for value in classes.tolist()]
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
    return bool(name.strip()) and name == name.encode("utf-8", "ignore").decode("utf-8")


def _write_rows(file: Path, texts: Sequence[Any], targets: Sequence[Any]) -> None:
    """Write the training file of a run."""

    def rows() -> Iterator[str]:
        for text, target in zip(texts, targets, strict=True):
            columns = (
                {"text": text}
                if isinstance(text, str)
                else dict(zip(("text", "pair"), text, strict=True))
            )
            yield json.dumps({**columns, "label": target}) + "\n"  # ASCII, for broken characters

    file.write_text("".join(rows()), encoding="utf-8")
