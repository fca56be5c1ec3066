"""The command line: a table of verbs, each imported only when chosen. Errors exit with status 2."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import os
import select
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Timer, main_thread
from types import FrameType
from typing import TextIO

from litebert.base import launch
from litebert.base.errors import ConfigError, GroupError, LitebertError, naming_extras, suggest

REPOSITORY = "https://github.com/OWNER/litebert"
"""The address of the repository, from which setup.py makes the links of the package."""

SITE = "https://{}.github.io/{}/".format(*REPOSITORY.split("/")[-2:])
"""The address of the pages, which the release workflow publishes."""

PAGES = "Pages: README.md, docs/." if "/OWNER/" in REPOSITORY else f"The pages are at\n{SITE}"
"""Where help says that they are: before a release, in the repository alone."""

VERBS: Mapping[str, tuple[str, str]] = {
    "fit": ("fit", "make the best model that a file of labels allows"),
    "demo": ("demo", "try three small models in seconds, offline"),
    "quickstart": ("models", "go from raw text to a pretrained model in minutes"),
    "finetune": ("tasks", "train a model on labeled rows, your own or of GLUE"),
    "distill": ("distill", "make a small model of a large one, and measure both"),
    "predict": ("answers", "answer texts with a fine-tuned model"),
    "fill-mask": ("answers", "predict masked words with a pretrained model"),
    "embed": ("answers", "write sentence vectors of texts to a file"),
    "serve": ("serve", "answer over HTTP with any models"),
    "evaluate": ("evaluate", "score a model on labeled files or held-out text"),
    "compare": ("models", "show runs side by side in one table"),
    "analyze": ("analyze", "show what each layer of a model does to a text"),
    "study": ("study", "run a paper's comparison on your text, with seeds"),
    "studies": ("study", "list the studies and their questions"),
    "recipes": ("points", "list the recipes"),
    "plan": ("points", "show what a recipe costs, or measure it"),
    "tokenizer": ("tokenizer", "train, extend or inspect a tokenizer"),
    "prepare": ("text", "turn text into token shards"),
    "merge": ("merge", "join the parts that several machines made"),
    "pretrain": ("models", "train a recipe on token shards"),
    "adapt": ("tokenizer", "give a model new words or another tokenizer"),
    "resize": ("convert", "change a model's shape: longer texts, fewer layers"),
    "convert": ("convert", "convert a model to another format"),
    "export": ("tasks", "write a model to answer with, in 8 bits or as ONNX"),
    "push": ("convert", "write a model to the Hugging Face Hub"),
    "doctor": ("doctor", "show what litebert runs on, for bug reports"),
    "completion": ("completion", "print a script that completes words in a shell"),
}
"""Each verb's file in `commands/`, and what it does; extensions' are in `registry.OWN_VERBS`."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Start": ("fit", "demo", "quickstart"),
    "Learn a task": ("finetune", "distill"),
    "Answer": ("predict", "fill-mask", "embed", "serve"),
    "Score, study": ("evaluate", "compare", "analyze", "study", "studies"),
    "Pretrain": ("recipes", "plan", "tokenizer", "prepare", "merge", "pretrain"),
    "Change a model": ("adapt", "resize", "convert", "export", "push"),
    "This machine": ("doctor", "completion"),
}
"""The verbs by what a person wants, as `litebert --help` shows them."""

EXAMPLES = (
    'litebert demo "It broke after a week."',
    "litebert fit train.csv",
    'litebert predict train-model "It broke after a week."',
)

OUT_OF_MEMORY = (
    "memory ran out; use a smaller batch (for training, a smaller --train.micro-batch, which keeps "
    "the batch), shorter sequences or a smaller model"
)

Verb = Callable[[list[str]], int]
SYNONYMS: Mapping[str, str] = {
    "benchmark": "doctor",
    "classify": "fit",
    "compress": "distill",
    "encode": "embed",
    "fill": "fill-mask",
    "infer": "predict",
    "list": "recipes",
    "quantize": "export",
    "score": "evaluate",
    "server": "serve",
    "test": "evaluate",
    "tokenize": "tokenizer",
    "train": "fit",
    "tune": "finetune",
    "upload": "push",
}
"""Verbs of other programs, and the verb here that a person means by each."""
NO_VERBS: Mapping[str, Verb] = {}
HELP = ("-h", "--help", "help")
VERSION = ("-V", "--version", "version")

NO_ROOM = (
    "memory ran out while libraries were loaded; raise the limit of this process (ulimit -v, or "
    "that of its container) to 2 GB or more"
)

VERBOSITY = {
    "--quiet": "show only warnings and errors, no progress bars",
    "--verbose": "also show timings, paths and what is loaded",
}
"""Flags of every verb, wherever they stand on the line."""


def help_text() -> str:
    """The text of `litebert --help`, which runs no extension."""
    rows = [
        f"{title if name == names[0] else '':<16}{name:<12}{VERBS[name][1]}\n"
        for title, names in GROUPS.items()
        for name in names
    ]
    examples = "".join(f"  {example}\n" for example in EXAMPLES)
    return (
        f"litebert: small text encoders, trained on your own text\n\n{examples}\n{''.join(rows)}\n"
        "litebert VERB --help shows examples and what most runs set, VERB --help all\n"
        f"every option. Every verb takes --quiet, --verbose. {PAGES}\n"
    )


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a verb as tidily as Ctrl-C does."""


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Turn SIGTERM into `Terminated`, so that what was begun is cleaned up, and keep SIGINT what it
    is.

    A library in C may make an error of its own of what a signal raises: that is undone. Within the
    import system, an exception could be ignored or leave a lock taken: there the signal comes again
    a moment later.
    """
    received: list[type[KeyboardInterrupt]] = []

    def handler(number: int, frame: FrameType | None) -> None:
        importing = (
            frame is not None and frame.f_code.co_filename == "<frozen importlib._bootstrap>"
        )
        if importing and hasattr(signal, "pthread_kill"):
            Timer(0.01, signal.pthread_kill, (main_thread().ident, number)).start()
            return
        received.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
        raise received[-1]

    before = {}
    try:
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, handler)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            before[signal.SIGINT] = signal.signal(signal.SIGINT, handler)
    except ValueError:  # not in the main thread, where Python delivers signals
        yield
        return
    try:
        yield
    except Exception as error:
        if received:
            raise received[-1] from error
        raise
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbosity = {name: f"--{name}" in words for name in ("quiet", "verbose")}
    words = [word for word in words if word not in VERBOSITY] or ["--help"]
    _prepare_streams()
    if words[0] in HELP and words[1:] not in ([], ["all"]):  # `help finetune`, `help finetune all`
        topic = [word for word in words[1:] if word != "all"]
        words = [*topic, "--help", *(["all"] if "all" in words else [])]
    about = dict.fromkeys(HELP, help_text) | dict.fromkeys(VERSION, _version_text)
    try:
        own_verbs = NO_VERBS if words[0] in (*VERBS, *about) else _load_own_verbs()
    except LitebertError as error:
        return _refuse(words[0], str(error))
    verbs = (*VERBS, *own_verbs)
    if words[0] not in (*verbs, *about):
        _complain(f"litebert: no verb '{words[0]}'; {_suggest_verb(words, verbs)}\n")
        return 2
    if all(verbosity.values()) and words[0] in verbs:
        return _refuse(words[0], "--quiet and --verbose contradict each other; give one of them")
    try:
        if launch.processes() > 1 and (words[0] in launch.GROUPED or not launch.work_alone()):
            _let_one_process_speak()
            if words[0] in verbs and words[0] not in launch.GROUPED:
                return _refuse(words[0], "this verb runs in one process; start it without torchrun")
    except ConfigError as error:
        return _refuse(words[0], str(error))
    _settle_threads(words[0])
    try:
        with _signals_raise(), naming_extras():
            status = 0
            if words[0] in about:
                sys.stdout.write(about[words[0]]())
            else:
                status = _run(words, **verbosity)
            sys.stdout.flush()
    except GroupError:  # another process reports
        return 2
    except LitebertError as error:
        return _refuse(words[0], str(error))
    except Terminated:
        _complain(f"litebert {words[0]}: terminated\n")
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        _complain(f"litebert {words[0]}: interrupted\n")
        return 130
    except OSError as error:  # a folder that cannot be written, a full disk
        stopped = _drop_output()
        if isinstance(error, BrokenPipeError) and (stopped or error.filename is not None):
            return 0  # the reader of our output has gone, as in `litebert recipes | head -1`
        location = (
            error.filename if error.filename is not None else "standard output" if stopped else None
        )
        return _refuse(words[0], _fault_of_system(error, location))
    except ImportError as error:  # of a library that finds no room
        if not _out_of_memory(error):
            raise
        return _refuse(words[0], NO_ROOM)
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        return _refuse(words[0], OUT_OF_MEMORY)
    return status


def _suggest_verb(words: Sequence[str], verbs: Sequence[str]) -> str:
    """A hint for words that begin with no verb."""
    first, *others = words
    meant = SYNONYMS.get(first.lower(), first)
    if meant not in verbs:
        later = next((word for word in others if word in verbs), None)
        if later is not None:
            rest = [word for word in words if word != later]
            return f"the verb comes first: litebert {shlex.join([later, *rest])}"
        if os.path.isfile(first):
            return f"to learn from a file of labels: litebert fit {first}"
    return suggest(meant, verbs) or "litebert --help shows the verbs"


def _settle_threads(verb: str) -> None:
    """Have worker threads that wait sleep after some microseconds, not spin; OpenMP reads this when
    torch is loaded.

    Beside any busy program, spinning makes a step five times as long
    (docs/decisions.md).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Answers multiply in the kernels; numpy takes a sixth of their start to begin threads of its
    # own. On ARM, torch reads this too.
    if verb in GROUPS["Answer"] and hasattr(os, "uname") and os.uname().machine == "x86_64":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _let_one_process_speak() -> None:
    """Silence all processes of a group but the first."""
    # Every process would print torch's remarks on DDP.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not launch.main_process():
        silence = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
        sys.stdout = sys.stderr = silence


def _version_text() -> str:
    from importlib.metadata import version

    return f"litebert {version('litebert')}\n"


def _run(words: Sequence[str], quiet: bool, verbose: bool) -> int:
    from litebert.base.registry import pause_collection

    with pause_collection():
        from litebert.commands.console import show_log

    # The process ends without a search for garbage, which takes half a second after torch.
    atexit.register(gc.freeze)
    show_log(quiet, verbose)
    verb = _load_verb(words[0])
    try:
        status = verb(list(words[1:]))
    except SystemExit as stop:  # how the argument parser leaves
        status = stop.code if isinstance(stop.code, int) else 1
    return status


def _load_verb(name: str) -> Verb:
    """Import a verb, and load the extensions that it may need."""
    from litebert.base.registry import OWN_VERBS, load_extensions, pause_collection

    if name != "doctor":  # which reports on the extensions itself
        load_extensions()
    if name not in VERBS:
        own_verb: Verb = OWN_VERBS[name]
        return own_verb
    with pause_collection():
        module = importlib.import_module(f"litebert.commands.{VERBS[name][0]}")
    verb: Verb = getattr(module, name.replace("-", "_"))
    return verb


def _load_own_verbs() -> Mapping[str, Verb]:
    """The verbs that extensions of the environment add."""
    from litebert.base.registry import OWN_VERBS, load_extensions

    load_extensions()
    return OWN_VERBS


def _refuse(verb: str, reason: str) -> int:
    _complain(f"litebert {verb}: {reason}\n")
    return 2


def _complain(text: str) -> None:
    """Write to standard error, if that is possible: the exit status says what is wrong too."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _point_at_nothing(sys.stderr)


def _fault_of_system(error: OSError, location: object) -> str:
    """A sentence about what the system refused, and where."""
    from litebert.base.storage import FULL

    reason = error.strerror or str(error)
    if error.errno in FULL:
        return (
            f"{location or 'a file'} cannot be written ({reason}); free some space and run the "
            "same command again"
        )
    return reason if location is None else f"{location}: {reason}"


def _drop_output() -> bool:
    """Forget what standard output cannot take, which Python would write again at its end; return
    whether it can take nothing more.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _point_at_nothing(sys.stdout)
        return True
    if not hasattr(select, "poll"):
        return False
    with suppress(OSError, ValueError):  # a stream of a test, say, has no descriptor
        poll = select.poll()  # the reader may be gone though nothing waits to be written
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    return False


def _point_at_nothing(stream: TextIO) -> None:
    """Let a stream write to the null device from now on."""
    with suppress(OSError, ValueError):  # a stream of a test, say, has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _out_of_memory(error: BaseException) -> bool:
    """True where memory ran out, of the machine or of an accelerator."""
    stack = (
        "can't start new thread",
        os.strerror(errno.EAGAIN),
    )  # a new thread found no room for it
    linker = ("failed to map segment", os.strerror(errno.ENOMEM))  # a library did not fit into it
    reported = ("DefaultCPUAllocator", "out of memory", *linker, *stack)
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or any(part in str(error) for part in reported)


def _prepare_streams() -> None:
    """See to it that neither a character that the terminal lacks nor a closed stream stops a
    verb."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # where the stream was redirected under Python
                stream.reconfigure(errors="backslashreplace")
