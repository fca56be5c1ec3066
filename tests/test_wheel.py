"""The wheel holds the whole package, and works in an environment that has nothing but what it
declares. The source distribution holds the repository.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator, Sequence, Set
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from packaging.requirements import Requirement
from readme_renderer.markdown import render

import litebert
from litebert.cli import REPOSITORY, SITE, VERBS, help_text
from litebert.demo import unpack
from litebert.kernels.loader import VARIANTS
from test_readme import leads_somewhere
from toys.finetuning import RECIPE, write_table
from toys.serving import serving

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that is built from it, without the
    network.
    """
    folder = tmp_path_factory.mktemp("distributions")
    for name in list_project_files():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "source" / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist")]
    subprocess.run([*command, str(folder / "source")], check=True, capture_output=True)
    return folder / "dist"


def list_project_files() -> list[str]:
    """The files of the repository, also those that are not committed yet."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a clone")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (built,) = distributions.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def linked_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `link` makes it, with what trains."""
    return link(wheel, tmp_path_factory.mktemp("linked") / "venv", {"train"})


def link(wheel: Path, place: Path, extras: set[str]) -> Path:
    """An environment of the wheel and, linked from this one, what it requires and no more; its
    `bin`.
    """
    venv.create(place, symlinks=True)
    scripts = place / ("Scripts" if os.name == "nt" else "bin")
    options = [f"--python={scripts / 'python'}", "install", "--no-deps", "--no-index"]
    subprocess.run([*PIP, *options, str(wheel)], check=True, capture_output=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    for distribution in list_requirements(read_facts(wheel).get_all("Requires-Dist"), extras):
        for top in {
            file.parts[0]
            for file in distribution.files or ()
            if file.parts[0] not in ("..", "__pycache__")
        }:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))  # type: ignore[arg-type]
    return scripts


def read_facts(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(about).decode())


def list_requirements(
    requirements: Sequence[str] | None, extras: Set[str] = frozenset(), seen: set[str] | None = None
) -> Iterator[metadata.Distribution]:
    """The packages here that are required, with these extras of the first, and theirs in turn."""
    seen = set() if seen is None else seen
    for requirement in map(Requirement, requirements or ()):
        key, marker = re.sub(r"[-_.]+", "-", requirement.name).lower(), requirement.marker
        asked = marker is None or any(marker.evaluate({"extra": name}) for name in ("", *extras))
        if key not in seen and asked:
            seen.add(key)
            yield metadata.distribution(key)
            yield from list_requirements(metadata.requires(key), requirement.extras, seen)


HELPS = (
    "from litebert.cli import VERBS, main; assert not any([main([verb, '--help']) for verb in "
    "VERBS])"
)


def output(*words: object) -> str:
    """Output of a command, in an environment without our paths."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(list(map(str, words)), env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
def test_it_holds_every_module_and_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        entries = archive.read(about.replace("METADATA", "entry_points.txt")).decode()
    facts, source = read_facts(wheel), ROOT / "src"
    modules = {
        str(path.relative_to(source).as_posix()) for path in (source / "litebert").rglob("*.py")
    }
    beside = {
        "litebert/py.typed",
        "litebert/analysis/page.css",
        "litebert/demo/models.zip",
        "litebert/kernels/answers.c",
        "litebert/kernels/functions.h",
        "litebert/kernels/training.c",
        "litebert/serve/playground.html",
    }
    if shutil.which("cc") and sys.platform == "linux":
        kind, compiled = platform.machine(), "litebert/kernels/answers-{}.so"
        beside |= {compiled.format(name) for name in VARIANTS if name.partition("-")[0] == kind}
        assert "-py3-none-" in wheel.name
        assert kind in wheel.name
    assert modules | beside == {name for name in names if name.startswith("litebert/")}
    assert {name.partition("/")[0] for name in names} == {"litebert", about.partition("/")[0]}
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{facts["Version"]}"' in declared
    assert f'requires-python = "{facts["Requires-Python"]}"' in declared
    for requirement in map(Requirement, facts.get_all("Requires-Dist") or ()):
        extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
        assert f'"{requirement.name}{extras}{requirement.specifier}' in declared
    assert facts["License-Expression"] == "Apache-2.0"
    assert facts["Description-Content-Type"] == "text/markdown"
    links = dict(link.split(", ") for link in facts.get_all("Project-URL") or ())
    assert set(links) == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert links.pop("Documentation") == SITE
    assert {link for link in links.values() if not link.startswith(REPOSITORY)} == set()
    assert "litebert = litebert.cli:main" in entries


@pytest.mark.thorough
@pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-gcc") is None, reason="needs a cross compiler for ARM"
)
def test_a_wheel_for_arm_is_built_on_another_machine(distributions: Path, tmp_path: Path) -> None:
    source = distributions.parent / "source"
    cross = {"CC": "aarch64-linux-gnu-gcc", "_PYTHON_HOST_PLATFORM": "linux-aarch64"}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    environment = {**os.environ, **cross}
    subprocess.run([*map(str, command), source], check=True, capture_output=True, env=environment)
    (built,) = tmp_path.glob("litebert-*-py3-none-manylinux_*_aarch64.whl")
    with zipfile.ZipFile(built) as archive:
        compiled = {name: archive.read(name) for name in archive.namelist() if ".so" in name}
    variants = [name for name in VARIANTS if name.startswith("aarch64")]
    assert set(compiled) == {f"litebert/kernels/answers-{name}.so" for name in variants}
    machine_of_arm = 183  # elf.h
    assert {library[18] for library in compiled.values()} == {machine_of_arm}


@pytest.mark.thorough
def test_the_source_distribution_holds_the_repository(distributions: Path) -> None:
    (built,) = distributions.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        names = {item.name.partition("/")[2] for item in archive.getmembers() if item.isfile()}
    names = {name for name in names if ".egg-info/" not in name}
    hosting = {name for name in list_project_files() if name.startswith(".")}
    assert names - {"PKG-INFO", "setup.cfg"} == {*list_project_files()} - hosting


@pytest.mark.thorough
def test_a_package_index_shows_the_readme(distributions: Path, wheel: Path) -> None:
    """The index takes both files, renders the README, and every link of it leads to a file of this
    version.
    """
    files = map(str, distributions.iterdir())
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    facts = read_facts(wheel)
    page = render(str(facts.get_payload()))
    assert page is not None
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert len(links) > 15
    relative = re.compile(rf"{re.escape(REPOSITORY)}/(?:blob|raw)/v{facts['Version']}/(.+)")
    paths = {link: match[1] if (match := relative.fullmatch(link)) else "" for link in links}
    lost = [link for link, path in paths.items() if not leads_somewhere(ROOT / "README.md", path)]
    assert lost == []


@pytest.mark.thorough
def test_it_starts_with_what_it_requires_alone(linked_bin: Path, tmp_path: Path) -> None:
    assert output(linked_bin / "litebert", "--help") == help_text()
    assert output(linked_bin / "python", "-m", "litebert", "--help") == help_text()
    assert "albert-tiny" in output(linked_bin / "litebert", "recipes")
    with pytest.raises(AssertionError, match="transformers"):
        output(linked_bin / "python", "-c", "import transformers")
    place = output(linked_bin / "python", "-c", "import litebert; print(litebert.__file__)")
    assert Path(place).is_relative_to(linked_bin.parent)
    helps = output(linked_bin / "python", "-c", HELPS)  # in one process, which imports torch once
    assert [verb for verb in VERBS if f"litebert {verb}" not in helps] == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to build the wheel")
def test_it_answers_without_torch_and_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    scripts = link(wheel, tmp_path / "venv", {"serve"})
    models = unpack(tmp_path / "models")
    (tmp_path / "texts.csv").write_text("text\na wonderful film\na dull story\n")
    texts = ("--input", tmp_path / "texts.csv", "--text-column", "text", "--out")
    alone = {"PATH": str(scripts), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with patch.dict(os.environ, alone):
        checks = json.loads(output(scripts / "litebert", "doctor", "--json"))
        output(scripts / "litebert", "predict", models["sentiment"], *texts, tmp_path / "a.csv")
        output(scripts / "litebert", "embed", models["vectors"], *texts, tmp_path / "v.npy")
        for name in ("sentiment", "words"):
            small = tmp_path / f"{name}-8"
            output(scripts / "litebert", "export", models[name], "--out", small)
            models[small.name] = small
        output(
            scripts / "litebert", "predict", tmp_path / "sentiment-8", *texts, tmp_path / "b.csv"
        )
        guesses = output(scripts / "litebert", "fill-mask", tmp_path / "words-8", "A [MASK] story.")
        command = [str(scripts / "python"), "-m", "litebert"]
        named = [f"{name}={folder}" for name, folder in models.items()]
        with (
            serving(tmp_path, *named, command=command, PYTHONPATH="") as service,
            service.client() as client,
        ):
            assert "<title>" in client.get("/").text
            served = client.post("/predict", json={"inputs": ["a dull story"]}).json()
            asked = {"model": "sentiment-8", "inputs": ["a dull story"]}
            served_from_export = client.post("/predict", json=asked).json()
    assert checks["libraries"]["torch"] is None
    assert checks["answers"].startswith("in use (answers-")
    assert not (tmp_path / "cache").exists() or not list(Path(tmp_path / "cache").rglob("*.so"))
    for name in ("a.csv", "b.csv"):
        with open(tmp_path / name, encoding="utf-8", newline="") as file:
            assert [row["prediction"] for row in csv.DictReader(file)] == ["positive", "negative"]
    assert guesses
    expected = litebert.load(models["vectors"]).encode(["a wonderful film", "a dull story"])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-5)
    assert served["predictions"][0]["prediction"] == "negative"
    assert served_from_export["predictions"][0]["prediction"] == "negative"


@pytest.mark.slow
@pytest.mark.parametrize("requirements", ["linked", "installed"])
def test_from_text_to_predictions(
    requirements: str,
    request: pytest.FixtureRequest,
    wheel: Path,
    tiny_corpus: Path,
    tmp_path: Path,
) -> None:
    """`installed` takes the requirements from the package index, in the versions of
    constraints.txt.
    """
    if requirements == "linked":
        scripts: Path = request.getfixturevalue("linked_bin")
    else:
        venv.create(tmp_path / "venv", symlinks=True)
        scripts = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
        options = ["install", "-c", str(ROOT / "constraints.txt"), f"{wheel}[train]"]
        subprocess.run([*PIP, f"--python={scripts / 'python'}", *options], check=True)
    program, recipe = scripts / "litebert", tmp_path / "small.toml"
    train = (
        'budget = "2 steps"\nbatch = "4 sequences"\ndepth_schedule = []\nevaluate_sequences = 8\n'
    )
    recipe.write_text(f'base = "albert-tiny"\n{RECIPE}\n[train]\n{train}')
    tokenizer, data, run, model = (
        tmp_path / name for name in ("tokenizer", "data", "run", "model")
    )
    table, dev = (
        write_table(tmp_path / "train.csv", 32),
        write_table(tmp_path / "dev.csv", 8, seed=1),
    )
    output(program, "--help")
    output(program, "recipes")
    output(program, "doctor")
    output(program, "tokenizer", "train", tiny_corpus, "--vocab-size", 300, "--out", tokenizer)
    output(
        program, "prepare", tiny_corpus, "--tokenizer", tokenizer, "--out", data, "--heldout", 0.1
    )
    output(program, "pretrain", recipe, "--shards", data, "--out", run)
    files = ("--data", table, "--dev", dev, "--text-column", "text", "--label-column", "label")
    output(program, "finetune", run, "--task", "table", *files, "--epochs", 1, "--out", model)
    output(
        program,
        "predict",
        model,
        "--input",
        dev,
        "--text-column",
        "text",
        "--out",
        tmp_path / "out.csv",
    )
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 8


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_the_first_commands_on_another_python(version: str, wheel: Path, tmp_path: Path) -> None:
    """With the requirements from the package index; skipped where there is no such Python."""
    python = shutil.which(f"python{version}")
    # A version manager's shim may be on the path without its Python.
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"needs python{version} on the path")
    command = [ROOT / "runs" / "try_wheel.sh", python, tmp_path / "out", wheel]
    settings = {**os.environ, "BUDGET": "20 steps"}
    done = subprocess.run([*map(str, command)], env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
