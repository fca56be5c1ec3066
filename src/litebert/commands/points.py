"""`litebert recipes` and `litebert plan`: the points of the space and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from litebert import recipes as points
from litebert.base.errors import ConfigError
from litebert.base.machine import keep_freed_memory
from litebert.commands import console
from litebert.commands.console import DeviceName, Json, RecipeName
from litebert.commands.options import Arg, Short, ShortForms, drop_options, require_beside
from litebert.config import PAIR_FORMATS, Config, cost, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.config.serialization import to_dict

if TYPE_CHECKING:
    from litebert.data.mixture import TrainingData
    from litebert.train.device import Device


@dataclass
class RecipesArguments:
    """List the recipes: name, size, masks and objectives of each."""

    examples: ClassVar[tuple[str, ...]] = ("litebert recipes",)

    json: Json = False


def recipes(words: list[str]) -> int:
    arguments = console.parse(RecipesArguments, words, "recipes")
    configs = {name: function() for name, function in points.RECIPES.items()}
    if arguments.json:
        console.print_json({name: to_dict(config) for name, config in configs.items()})
        return 0
    rows = []
    for name, config in configs.items():
        shape, mask = config.encoder, config.masking
        count = sum(cost.encoder_parameters(shape).values())
        masks = f"{mask.unit}s" if mask.span == "single" else f"1-{mask.max_span} {mask.unit}s"
        masks += f" {mask.copies}x" if mask.copies else ""
        sizes = map(str, (shape.layers, shape.hidden_size, shape.embedding_size))
        form = config.sequences.format
        reads = "pair" if form in PAIR_FORMATS else form.split("-")[0]
        learns = "+".join(config.objectives)
        rows.append((name, _short(count), *sizes, shape.sharing, reads, masks, learns))
    console.table(("recipe", "size", "L", "H", "E", "share", "input", "masks", "learns"), rows)
    console.ending(None, ("plan", next(iter(configs))))
    return 0


def _short(count: float) -> str:
    unit = next((i for i in (3, 2, 1) if count >= 1000**i), 0)
    return f"{count / 1000**unit:.3g}{('', 'K', 'M', 'B')[unit]}"


@dataclass
class PlanArguments:
    """Show parameters, FLOPs and memory of a recipe before you start it."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert plan albert-next-tiny",
        "litebert plan albert-base --shards data --measure",
        "litebert plan bert-mini --encoder.layers 6 --batch-size 128",
    )

    common: ClassVar[str] = "shards measure lr batch-size max-length bf16 fp32 seed device json"

    recipe: RecipeName
    shards: Annotated[tuple[str, ...], Arg("DATA[:WEIGHT]")] = ()
    """Also show how often the budget reads this data."""
    measure: bool = False
    """Train for seconds, to measure hours and the largest micro-batch."""
    device: DeviceName = "auto"
    json: Json = False
    short: Short = field(default_factory=ShortForms)


def plan(words: list[str]) -> int:
    arguments, config = console.parse_with_recipe(PlanArguments, words, "plan")
    require_beside("measure", arguments, "device")
    shards = None
    if arguments.shards:
        with console.loading():
            from litebert.data.mixture import open_data, parse_weights

        shards = open_data(parse_weights(arguments.shards))
        config = replace(
            config, encoder=replace(config.encoder, vocab_size=shards.tokenizer.vocab_size)
        )
    data = _plan(config, arguments.measure, arguments.device)
    if shards is not None:
        data["data"] = _count_epochs(config, shards, data.get("measured", {}).get("steps"))
    rest = drop_options(words, ["--measure", "--json"])
    flags, valued = _changes(config, data)
    others = drop_options(rest, flags, valued)  # no option may be given twice
    changes = (*flags, *(word for pair in valued.items() for word in pair))
    named = [] if arguments.shards else ["--shards", "DATA"]
    following = [("pretrain", *others, *changes, *named, "--out", "RUN")]
    if not arguments.measure:
        following.append(("plan", *rest, "--measure"))
    if arguments.json:
        console.print_json(data)
    else:
        _show_parameters(config, data)
        _show_costs(config, data)
        if "measured" in data:
            _show_measured(config, data["measured"])
        if "data" in data:
            rows = []
            for entry in data["data"]:
                epochs = "-" if entry["epochs"] is None else f"{entry['epochs']:,.2f}"
                rows.append(
                    (entry["data"], f"{entry['tokens']:,}", f"{entry['share']:.1%}", epochs)
                )
            console.table(
                ("data", "tokens", "share of the sequences", "epochs in the budget"), rows
            )
            if any(entry["epochs"] is None for entry in data["data"]):
                console.show("How often a budget in time reads the data is known with --measure.")
    console.ending(None, *following)
    return 0


def _show_parameters(config: Config, data: dict[str, Any]) -> None:
    total = data["parameters"]["total"]
    rows = [
        (part, f"{count:,}", f"{count / total:.1%}") for part, count in data["parameters"].items()
    ]
    console.table(("part", "parameters", "share"), rows, title=config.name)
    if not data["published"]:
        return
    encoder, without = data["encoder_parameters"], data["encoder_parameters_without_pooler"]
    more = "" if encoder == without else f", {without:,} without its pooler"
    for name, objective in config.build_objectives().items():
        if objective.counted_in_print:
            count = encoder + data["parameters"][f"{name} head"]
            more = f", {count:,} with {objective.counted_in_print}"
    console.show(
        f"The paper prints {data['published']['parameters']} "
        f"({data['published']['source']}); exactly {encoder:,} for the encoder{more}."
    )


def _show_costs(config: Config, data: dict[str, Any]) -> None:
    flops, memory = data["flops_per_token"], data["memory_bytes"]
    console.table(
        ("per token of training", "FLOPs"),
        [
            ("forward", _short(flops["forward"])),
            ("backward", _short(flops["backward"])),
            ("layers again, with --train.recompute", _short(flops["recompute"])),
        ],
    )
    recomputed = data["recompute_memory_bytes"]
    head = f"memory at {data['micro_batch']} x {config.sequences.length} tokens"
    sizes = [
        (part, cost.format_bytes(size), cost.format_bytes(recomputed[part]))
        for part, size in memory.items()
    ]
    console.table((head, "bytes", "with --train.recompute"), sizes)


def _show_measured(config: Config, measured: dict[str, Any]) -> None:
    console.table(
        ("measured here", ""),
        [
            ("machine", measured["machine"]),
            ("tokens/s", f"{measured['tokens_per_second']:,.0f}"),
            ("GFLOP/s", f"{measured['flops_per_second'] / 1e9:,.0f}"),
            (
                "GFLOP/s of matrix multiplications alone",
                f"{measured['products_flops_per_second'] / 1e9:,.0f}",
            ),
            ("share of their speed", f"{measured['share_of_products']:.0%}"),
            ("sequences per step", f"{measured['batch_sequences']:,}"),
            ("seconds per step", f"{measured['seconds_per_step']:.3f}"),
            ("steps in the budget", f"{measured['steps']:,}"),
            ("hours for the budget", f"{measured['hours']:,.2f}"),
            ("processes that make batches", f"{measured['batch_processes']}"),
            (
                "largest micro-batch",
                f"{measured['largest_micro_batch']:,} sequences of {config.sequences.length}",
            ),
        ],
    )
    if measured["recompute"] and not config.train.recompute:
        console.show(
            "Measured with --train.recompute: without it, too few sequences fit in the "
            "free memory at a time."
        )


def _changes(config: Config, data: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Choose the flags, and the options with values, with which a run fits in the memory that was
    measured.
    """
    measured = data.get("measured", {})
    is_again = measured.get("recompute", False) > config.train.recompute
    smaller = measured.get("largest_micro_batch", config.micro_sequences) < config.micro_sequences
    flags = ["--train.recompute"] if is_again else []
    return flags, {"--train.micro-batch": "auto"} if smaller else {}


def _plan(config: Config, measured: bool, device: str) -> dict[str, Any]:
    parts = cost.model_parameters(config)
    encoder = cost.encoder_parameters(config.encoder)
    shapes = {name: points.RECIPES[name]().encoder for name in points.PUBLISHED}
    published = next(
        (points.PUBLISHED[name] for name, shape in shapes.items() if shape == config.encoder), None
    )
    memory = cost.memory(config)
    less = cost.memory(replace(config, train=replace(config.train, recompute=True)))
    forward = cost.forward_flops(config)
    data: dict[str, Any] = {
        "recipe": config.name,
        "parameters": {**parts, "total": sum(parts.values())},
        "encoder_parameters": sum(encoder.values()),
        "encoder_parameters_without_pooler": sum(encoder.values()) - encoder["pooler"],
        "published": {"parameters": published[0], "source": published[1]} if published else None,
        "flops_per_token": {
            "forward": forward,
            "backward": 2 * forward,
            "recompute": cost.count_recomputed_flops(config),
        },
        "micro_batch": config.micro_sequences,
        "memory_bytes": {**vars(memory), "total": sum(vars(memory).values())},
        "recompute_memory_bytes": {**vars(less), "total": sum(vars(less).values())},
    }
    if measured:
        data["measured"] = _measure(config, device)
    return data


def _count_epochs(
    config: Config, data: TrainingData, measured_steps: int | None
) -> list[dict[str, Any]]:
    """Return the tokens, the share and the epochs of each set; no epochs for an unmeasured budget
    in time.
    """
    with console.loading():
        from litebert.data.mixture import list_sets
        from litebert.data.segments import list_splits
        from litebert.train.measure import count_steps
        from litebert.train.schedule import Plan
        from litebert.train.supply import PretrainingBatches

    is_time = parse_amount(config.train.budget, "train.budget", BUDGET_UNITS).unit == "time"
    steps = measured_steps if is_time else count_steps(config, None)
    sets, splits = list_sets(data), list_splits(data.train)
    epochs: list[float | None] = [None] * len(sets)
    if steps is not None:
        epochs = [*PretrainingBatches(config, data, Plan((steps,))).count_epochs(steps)]
    total = sum(weight for _, weight in splits)
    return [
        {"data": member.name, "tokens": split.tokens, "share": weight / total, "epochs": count}
        for member, (split, weight), count in zip(sets, splits, epochs, strict=True)
    ]


def _measure(config: Config, device: str) -> dict[str, Any]:
    with console.loading():
        from litebert.train import device as devices
        from litebert.train.measure import choose_batch, count_steps, measure, measure_matmul_speed
        from litebert.train.ranks import Ranks
        from litebert.train.supply import count_processes

    keep_freed_memory()
    machine = devices.choose(config.train.precision, device)
    if config.train.batch == "auto":
        batch = f"{choose_batch(config, machine, Ranks())} sequences"
        config = replace(config, train=replace(config.train, batch=batch))
    config, largest = _fit_memory(config, machine)
    micro_batch = min(config.micro_sequences, largest)
    rate = measure(replace(config, train=replace(config.train, micro_batch=micro_batch)), machine)
    steps = count_steps(config, rate)
    tokens = config.batch_sequences * config.sequences.length
    full_depth = rate.step_seconds[-1][1]
    flops = 3 * cost.forward_flops(config) * tokens / full_depth
    products = measure_matmul_speed(machine)
    return {
        "machine": machine.describe(),
        "batch_sequences": config.batch_sequences,
        "seconds_per_step": rate.mean_step_seconds,
        "tokens_per_second": config.batch_sequences * config.mean_length / rate.mean_step_seconds,
        "flops_per_second": flops,
        "products_flops_per_second": products,
        "share_of_products": flops / products,
        "batch_processes": count_processes(config, machine),
        "steps": steps,
        "hours": steps * rate.mean_step_seconds / 3600,
        "largest_micro_batch": largest,
        "recompute": config.train.recompute,
    }


def _fit_memory(config: Config, machine: Device) -> tuple[Config, int]:
    """Find the largest micro-batch, with recomputed layers where too few sequences fit
    otherwise."""
    from litebert.train.memory import (
        enable_recompute,
        find_largest_micro_batch,
        find_least_micro_batch,
    )

    largest = find_largest_micro_batch(config, machine)
    if largest < find_least_micro_batch(config) and not config.train.recompute:
        more = find_largest_micro_batch(enable_recompute(config), machine)
        if more > largest:
            config, largest = enable_recompute(config), more
    if largest == 0:
        raise ConfigError(
            f"{config.name} does not fit in the free memory of this machine, even one sequence at "
            "a time; free some memory, or use a smaller encoder or --sequences.length"
        )
    return config, largest
