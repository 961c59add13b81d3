"""`lingua up`: everything on this machine, in one command: a scheduler, a node, and its models.

The scheduler is the one of the settings, with its port and its data; both processes are children
that end with this one, however it ends. For this machine alone, or with `--share` for the phones in
this network. A service for others is started by `lingua serve` and `lingua node`, with the keys
that `lingua init` makes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import TYPE_CHECKING, Final

from lingua_cli.certificates import tls_of
from lingua_cli.command_name import command_name
from lingua_cli.terminal import output_errors, stoppable
from lingua_node.machine import default_node_id
from lingua_scheduler.commands.init_files import ADMIN_TOKEN, CERTIFICATE, NODE_TOKEN
from lingua_scheduler.commands.nodes import listed
from lingua_scheduler.commands.scheduler_client import SchedulerClient
from lingua_scheduler.commands.serve import add_share, settings_for
from lingua_scheduler.commands.share import NODE_ID, page_lines, share_folder
from lingua_scheduler.config.consistency import is_loopback
from lingua_scheduler.edge.answers import NodeAnswer, NodePage
from lingua_scheduler.edge.listen_errors import AddressUnusable, instance_at
from lingua_speech import presets
from lingua_speech.commands.models import installed_line, progress_on
from lingua_speech.commands.voice import add_voice, voice_words
from lingua_speech.models import default_store
from lingua_translate.local import ServiceAccess, ServiceFailed, own_service
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_scheduler.config import Settings
    from lingua_translate.local import PrivateService

DEFAULT_ENGINES: Final = "default"
REACH_S: Final = 0.5
DIRECTIONS_CHARS: Final = 60


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua up`."""
    parser = subparsers.add_parser(
        "up", help="run a scheduler and a node here, with their models, until Ctrl-C"
    )
    parser.set_defaults(run=run_up, host=None)
    parser.add_argument("--port", type=int, help="port to listen on (default: 5010; 0: a free one)")
    add_share(parser)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--engines",
        nargs="+",
        metavar="ENGINE",
        default=[DEFAULT_ENGINES],
        help="engines of the node, as for `lingua node` (default: default)",
    )
    kind.add_argument("--simulate", action="store_true", help="a simulated node")
    add_voice(parser)


def run_up(args: argparse.Namespace) -> int:
    """Run until Ctrl-C; exit code 0 if it was up until then, 130 if not, 1 if something failed."""
    settings = settings_for(args)
    if args.share is None:
        check_for_this_machine(settings)
    check_unused(settings)
    if not args.simulate:
        prepare_engines(args.engines, args.voice)
    with output_errors():
        return asyncio.run(stay_up(args, settings))


def check_for_this_machine(settings: Settings) -> None:
    """Raise if the settings are those of a service for others: its node would need a token."""
    if not is_loopback(settings.server.host) or settings.server.tls_cert_file:
        path = "server.host" if not settings.server.tls_cert_file else "server.tls_cert_file"
        raise ConfigError(path, "listens for other machines: start `lingua serve` instead")
    if settings.auth.node_keys or settings.auth.client_keys:
        path = "auth.node_keys" if settings.auth.node_keys else "auth.client_keys"
        raise ConfigError(path, "requires tokens: start `lingua serve` and `lingua node` instead")


def check_unused(settings: Settings) -> None:
    """Raise if the port is in use, before models are fetched in vain."""
    host, port = settings.server.host, settings.server.port
    if not port:
        return
    with contextlib.closing(socket.socket(_family(host))) as probe:
        probe.settimeout(REACH_S)
        if probe.connect_ex((host, port)) != 0:
            return
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    # One that has a certificate says nothing to a stranger.
    if not settings.server.tls_cert_file and (instance := instance_at(f"{url}/health")):
        raise LinguaError(
            f"a scheduler runs at {url} already (instance {instance}): `lingua nodes` shows its "
            "nodes, `lingua node --engines default` adds one"
        )
    another = f"another program listens there; choose another port, as --port {port + 1}"
    raise AddressUnusable(host, port, another)


def prepare_engines(words: Sequence[str], voice: presets.Voice | None = None) -> None:
    """Check that the node will find its libraries and models; fetches the models."""
    plan = presets.plan_of(words, voice)
    presets.check_libraries(plan)
    store = default_store()
    missing = presets.missing_models(plan, store)
    if missing:
        print(f"fetching models, once, into {store.root}", flush=True)
    for name in missing:
        with progress_on(sys.stderr) as progress:
            done = store.install(name, progress)[-1]
        print(f"  {installed_line(done)}", flush=True)


async def stay_up(args: argparse.Namespace, settings: Settings) -> int:
    """Start both, print where, and run until Ctrl-C or until one of them ends."""
    is_up = False
    try:
        with stoppable():
            print("starting a scheduler and a node …", flush=True)
            words = serve_words(args, settings), node_words(args, settings)
            async with own_service(*words, note, access_of(settings)) as service:
                print(await asyncio.to_thread(greeting, service, settings), flush=True)
                is_up = True
                child = await service.ended()
                told = f"{child.name} has ended (exit code {child.exit_code}):"
                raise ServiceFailed(told, child.tail)
    except asyncio.CancelledError:
        if not is_up:
            raise
        print("ended", flush=True)
    return 0


def serve_words(args: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the command of the scheduler."""
    named = ["--config", str(args.config)] if args.config else []
    port = ["--port", str(settings.server.port)]
    share = [] if args.share is None else ["--share", settings.server.host]
    return [*named, "serve", *port, *share, "--log-level", "warning", "--log-json"]


def node_words(args: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the arguments of the node; of a shared service it needs the token."""
    engines = ["--engines", *args.engines, *voice_words(args.voice)]
    kind = ["--simulate"] if args.simulate else engines
    if args.share is None:
        return [*kind, "--node-id", default_node_id()]
    folder = share_folder(settings)
    trust = ["--ca", str(folder / CERTIFICATE), "--token-file", str(folder / NODE_TOKEN)]
    return [*kind, "--node-id", NODE_ID, *trust]


def access_of(settings: Settings) -> ServiceAccess:
    """Return how this process asks the scheduler about its nodes."""
    if not settings.auth.client_keys:
        return ServiceAccess()
    folder = share_folder(settings)
    token = (folder / ADMIN_TOKEN).read_text(encoding="utf-8").strip()
    return ServiceAccess(token, tls_of(folder / CERTIFICATE))


def note(line: str) -> None:
    """Show the output of the processes."""
    print(f"  {line}", flush=True)


def greeting(service: PrivateService, settings: Settings) -> str:
    """Return that it is up, and what to do with it."""
    lingua, url, access = command_name(), service.http_url, service.access
    scheduler = SchedulerClient(url, access.token or None, access.tls)
    nodes = scheduler.get("/api/v1/nodes", NodePage, limit=10).nodes
    if access.token:
        up = ("", "lingua is up (Ctrl-C ends it)", f"  translates   {directions(nodes)}", "")
        return "\n".join((*up, *page_lines(settings, url)))
    where = "" if url.endswith(":5010") else f" --url {url}"
    talk = "" if url.endswith(":5010") else f" --url {service.session_url}"
    first, second = example_pair(nodes)
    return "\n".join(
        (
            "",
            f"lingua is up: open {url} (Ctrl-C ends it)",
            f"  translates   {directions(nodes)}",
            f"  a recording  {lingua} translate talk.wav --from {first} --to {second}{talk}",
            f"  a microphone {lingua} translate mic --from {first} --to {second} --play{talk}",
            f"  programs     {service.session_url} (docs/client-sdk.md)",
            f"  OpenAI's     OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=any (docs/openai.md)",
            f"  what it does {lingua} nodes{where}; {lingua} sessions{where}",
        )
    )


def directions(nodes: Sequence[NodeAnswer]) -> str:
    """Return what the nodes translate, as far as there is room."""
    known = [node.languages for node in nodes if node.languages is not None]
    if any(can.pairs is None for can in known):
        return "any language into any"
    pairs = dict.fromkeys(pair for can in known for pair in can.pairs or () if not _is_same(pair))
    return listed([pair.replace(">", " to ") for pair in pairs], DIRECTIONS_CHARS)


def example_pair(nodes: Sequence[NodeAnswer]) -> tuple[str, str]:
    """Return languages to try."""
    pairs = [pair for n in nodes if n.languages for pair in n.languages.pairs or ()]
    wanted = [pair for pair in pairs if not _is_same(pair)]
    first, _, second = ("en>es" if not wanted or "en>es" in wanted else wanted[0]).partition(">")
    return first, second


def _is_same(pair: str) -> bool:
    first, _, second = pair.partition(">")
    return first == second


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
