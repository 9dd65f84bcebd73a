"""The tree of commands; each is imported only when it is run."""

from __future__ import annotations

from importlib.metadata import version

from cyclopts import App, Parameter

_VERBS: tuple[tuple[str, str, str], ...] = (
    ("init", "learnloop.cli.init:init", "Make a runnable project folder from a template."),
    ("doctor", "learnloop.cli.doctor:doctor", "Look over this machine."),
    ("check", "learnloop.cli.check:check", "Look whether everything of a project fits together."),
    ("eval", "learnloop.cli.evaluate:evaluate", "Measure one candidate on one split."),
    ("probe", "learnloop.cli.probe:probe", "Try some tasks several times: where can it learn?"),
    ("advise", "learnloop.cli.advise:advise", "Say what to repair first, or what to train with."),
    ("train", "learnloop.cli.train:train", "Train the agent and measure what it gained."),
    ("report", "learnloop.cli.report:report", "Write the report of a run."),
    ("compare", "learnloop.cli.compare:compare", "Compare two runs, or arms of them, by task."),
    ("runs", "learnloop.cli.runs:runs", "List the runs of a project."),
    ("flags", "learnloop.cli.flags:flags", "Show what guards found in a run."),
    ("show", "learnloop.cli.show:show", "Show one run or one rollout."),
)
_GROUPS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "models",
        "Fetch and list models.",
        (
            ("list", "learnloop.cli.models:list_command", "List known models and their state."),
            ("pull", "learnloop.cli.models:pull", "Fetch a model into the cache."),
        ),
    ),
    (
        "import",
        "Make projects from the files of other programs.",
        (
            (
                "openai-rft",
                "learnloop.cli.import_:openai_rft",
                "Make a project from the files of a hosted reinforcement job.",
            ),
        ),
    ),
    (
        "db",
        "Look after a project's database.",
        (
            ("backup", "learnloop.cli.db:backup", "Copy the database, also while a run writes it."),
            ("purge", "learnloop.cli.db:purge", "Erase what was said in rollouts; numbers stay."),
            ("upgrade", "learnloop.cli.db:upgrade", "Bring an older database up to date."),
        ),
    ),
    (
        "ledger",
        "Look at the record of what a project's runs did.",
        (
            ("show", "learnloop.cli.ledger:show", "List the entries of the ledger."),
            ("verify", "learnloop.cli.ledger:verify", "Prove that nothing stored was altered."),
            ("sign-off", "learnloop.cli.archive:sign_off", "Record who accepts a run."),
            ("keygen", "learnloop.cli.archive:keygen", "Make the key that signs exports."),
            ("export", "learnloop.cli.archive:export", "Write a signed archive for auditors."),
            (
                "check-export",
                "learnloop.cli.archive:check_export",
                "Prove that nothing in an archive was altered.",
            ),
        ),
    ),
    (
        "tools",
        "Look at, call and record a project's tools.",
        (
            ("list", "learnloop.cli.tools:list_command", "List the tools and what they take."),
            ("call", "learnloop.cli.tools:call", "Call a tool once."),
            ("record", "learnloop.cli.tools:record", "Make calls and write them to a cassette."),
        ),
    ),
    (
        "sandbox",
        "Look at what confines foreign code.",
        (
            (
                "selftest",
                "learnloop.cli.sandbox:selftest",
                "Attack the sandbox of this machine in every way we know.",
            ),
        ),
    ),
    (
        "config",
        "Look at a project's settings.",
        (("show", "learnloop.cli.config:show", "Show every setting, defaults included."),),
    ),
)


def build_app() -> App:
    """Return the command line; nothing but the tree itself is loaded."""
    app = App(
        name="learnloop",
        help="Train tool-using agents by learning loops.",
        version=lambda: version("learnloop"),
        default_parameter=Parameter(negative=()),
        suppress_keyboard_interrupt=False,
    )
    for name, path, text in _VERBS:
        app.command(path, name=name, help=text)
    for group, text, verbs in _GROUPS:
        branch = App(name=group, help=text)
        for name, path, line in verbs:
            branch.command(path, name=name, help=line)
        app.command(branch)
    return app
