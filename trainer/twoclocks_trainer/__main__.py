"""The command `twoclocks-train`: flags in, a progress line while it trains, one line of summary.

Exit codes: 0 the budget was used, 1 the weights are no longer finite, 2 bad input, 3 stopped before the
budget by a directive or a signal (`--resume` goes on), 130 interrupted twice. The first SIGINT or SIGTERM
ends the run at the next step boundary, with a checkpoint. Arguments are parsed before torch is imported.
"""

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from twoclocks_trainer.tasks import PRETRAINING_STEPS, SKILL_SHARE, TASKS

if TYPE_CHECKING:
    from twoclocks_trainer.config import TrainConfig
    from twoclocks_trainer.loop import TrainResult

EXIT_CODES = {"finished": 0, "failed": 1, "stopped": 3}


def main(argv: Sequence[str] | None = None) -> int:
    """Train one run, or make a base model (`base`); return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        from twoclocks_trainer.config import ConfigError, from_flags

        try:
            if arguments[:1] == ["base"]:
                return _base(arguments[1:])
            return _train(from_flags(arguments))
        except ConfigError as error:
            print(f"twoclocks-train: {error}", file=sys.stderr)
            return 2
    except ImportError as error:
        print(
            f"twoclocks-train: {error.name} is missing; pip install 'twoclocks[trainer]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130


def _train(config: "TrainConfig") -> int:
    from rich.console import Console
    from rich.logging import RichHandler

    interrupt = _interrupt_on_signals()
    console = Console()
    errors = Console(stderr=True)
    handler: logging.Handler = logging.StreamHandler()
    if errors.is_terminal:  # anywhere else a line stays one line, however long
        handler = RichHandler(
            console=errors, show_time=False, show_level=False, show_path=False, markup=False
        )
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])

    from twoclocks_trainer.loop import train
    from twoclocks_trainer.progress import Display

    with Display(config, console) as display:
        result = train(config, on_report=display.update, interrupt=interrupt)
    console.print(summary(result), highlight=False, soft_wrap=True)
    return EXIT_CODES[result.state]


def summary(result: "TrainResult") -> str:
    """How a run ended, in one line."""
    reward = "none" if result.final_reward is None else f"{result.final_reward:.2f}"
    switches = "".join(
        f", switched to batch {switch['rollout_batch']} at {switch['samples']:,} samples"
        for switch in result.switches
    )
    return (
        f"{result.run} {result.state}{f' ({result.reason})' if result.reason else ''}: {result.steps} steps, "
        f"{result.samples:,} samples, reward {reward}, held-out {result.final_eval_reward:.2f}{switches}"
    )


def _interrupt_on_signals() -> threading.Event:
    """Return an event that the first SIGINT or SIGTERM sets; a second SIGINT raises KeyboardInterrupt."""
    interrupt = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if interrupt.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        interrupt.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return interrupt


def _base(arguments: Sequence[str]) -> int:
    from twoclocks_trainer.config import ConfigError

    parser = argparse.ArgumentParser(
        prog="twoclocks-train base",
        description="Remake a base model: supervised pretraining on the task's mixture of skills, one core.",
    )
    parser.add_argument("--task", choices=sorted(TASKS), default="sort")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write it to")
    parser.add_argument("--steps", type=int, help="batches of 128 (default: as for the shipped base)")
    parser.add_argument(
        "--skill-share", type=float, help="share of right answers it is shown (default: so too)"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: as for the shipped base")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch")
    given = parser.parse_args(arguments)
    steps = PRETRAINING_STEPS[given.task] if given.steps is None else given.steps
    share = SKILL_SHARE[given.task] if given.skill_share is None else given.skill_share
    if min(given.threads, steps) < 1 or given.seed < 0 or not 0 <= share <= 1:
        raise ConfigError(
            "--steps and --threads are at least 1, --seed at least 0, --skill-share within 0 and 1"
        )

    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out cannot be written: {error}") from None

    import torch
    from rich.progress import track

    from twoclocks_trainer.base import pretrain
    from twoclocks_trainer.model import new_model, save_model

    torch.set_num_threads(given.threads)
    model = new_model(given.seed)
    losses = list(
        track(
            pretrain(model, TASKS[given.task], steps=steps, skill_share=share, seed=given.seed), total=steps
        )
    )
    save_model(model, given.out)
    print(f"base for {given.task} written to {given.out}: loss {losses[-1]:.3f} after {steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
