"""The command line: ``stakes plan``, ``stakes calibrate``, ``stakes serve`` and so on, one file each in ``commands``.

Every command prints a summary, or with ``--json`` one object on stdout and nothing else. Bad input ends with one
sentence on stderr and exit status 2, and writes nothing.
"""

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from stakes.aliases import with_new_options
from stakes.commands import corrections, data, signal
from stakes.commands.calibrate import calibrate
from stakes.commands.demo import demo
from stakes.commands.doctor import doctor
from stakes.commands.envoy import envoy
from stakes.commands.evaluate import evaluate
from stakes.commands.explain import explain
from stakes.commands.families import families
from stakes.commands.plan import plan
from stakes.commands.report import report
from stakes.commands.reproduce import reproduce
from stakes.commands.serve import serve
from stakes.commands.tokens import tokens
from stakes.errors import StakesError

app = typer.Typer(
    name="stakes",
    help="Spend a vision-language model's visual tokens where mistakes are expensive.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(plan)
app.command()(explain)
app.command()(reproduce)
app.command()(tokens)
app.command()(families)
app.add_typer(data.app, name="data")
app.add_typer(signal.app, name="signal")
app.add_typer(corrections.app, name="corrections")
app.command()(calibrate)
app.command()(evaluate)
app.command()(serve)
app.command()(envoy)
app.command()(report)
app.command()(demo)
app.command()(doctor)

STOPPED = 130
RESUMED = ("calibrate", "evaluate", "demo", "reproduce")
"""Commands that write every answer to a log as it arrives, and resume from it."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"stakes {version('stakes')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Spend a vision-language model's visual tokens where mistakes are expensive."""


# Wrong options and missing arguments: typer's own error class, wherever this version of typer keeps it.
_UsageError: Any = typer.BadParameter.__base__


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave the process with its exit status."""
    # Torch threads that wait by spinning use four times the CPU of threads that sleep, and on a busy machine more wall
    # time too (16 answers of the reader: 12.5 s against 2.8). Torch reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        words = with_new_options(sys.argv[1:] if arguments is None else arguments)
        status = app(words, prog_name="stakes", standalone_mode=False)
    except StakesError as error:
        _fail(str(error))
    except _UsageError as error:
        sentence = error.format_message().rstrip(".")
        if not sentence:  # no command: the help has been printed
            sys.exit(2)
        context = getattr(error, "ctx", None)
        _fail(f"{sentence}; see {context.command_path if context else 'stakes'} --help")
    except (KeyboardInterrupt, typer.Abort):
        _stop(arguments)
    except BrokenPipeError:  # the output was closed, as in `stakes plan | head`
        sys.stderr.close()
        sys.exit(0)
    else:
        if status == STOPPED:  # how typer reports Ctrl-C
            _stop(arguments)
        sys.exit(status if isinstance(status, int) else 0)


def _stop(arguments: list[str] | None) -> NoReturn:
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in RESUMED:
        print("stakes: stopped; answers so far are kept, and the same command continues from them", file=sys.stderr)
    sys.exit(STOPPED)


def _fail(sentence: str) -> NoReturn:
    print(f"stakes: {sentence}", file=sys.stderr)
    sys.exit(2)
