r"""What open consoles cost a scheduler, and what they do to people who speak.

The system of `lingua bench live` (a real `lingua serve`, nodes, speaking sessions) is measured in
turns without and with readers of `/api/v1/events`: both see the same moments of the machine, so
the ratio means something where the numbers do not. Turns in which the load itself was late, because
others use the machine, are shown and do not count. The readers are a process of their own that
reads and throws away. The script is bounded: turns * 6 * about 10 s at most.

    .venv/bin/python bench/console_cost.py [--readers 200] [--sessions 200] [--turns 5]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import selectors
import socket
import statistics
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lingua_bench.live_orders import Paced
from lingua_bench.live_processes import running_system

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event

    from lingua_bench.live_orders import OrderResult
    from lingua_bench.live_processes import LoadProcess

SECONDS = 6.0
LIMIT_S = 90.0
# A turn in which the load itself was later than this says more about the machine than about us.
LATE_MS_MAX = 3.0
READY_S = 20.0


def read_all(
    address: tuple[str, int], readers: int, ready: Event, stop: Event, total: multiprocessing.Value
) -> None:
    """Open the streams, and read them until told to stop."""
    chosen = selectors.DefaultSelector()
    head = f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\n\r\n".encode()
    socks = []
    for _ in range(readers):
        sock = socket.create_connection(address)
        sock.sendall(head)
        sock.settimeout(0)
        chosen.register(sock, selectors.EVENT_READ)
        socks.append(sock)
    greeted: set[int] = set()
    while not stop.is_set():
        for key, _ in chosen.select(0.5):
            data = key.fileobj.recv(1 << 18)
            if not data:
                sys.exit("a stream was closed")
            total.value += len(data)
            greeted.add(key.fd)
        if len(greeted) == readers:
            ready.set()
    for sock in socks:
        sock.close()


@contextmanager
def open_consoles(url: str, readers: int) -> Iterator[multiprocessing.Value]:
    """Keep so many streams open."""
    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port or 80)
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    total = multiprocessing.Value("q", 0)
    process = multiprocessing.Process(target=read_all, args=(address, readers, ready, stop, total))
    process.start()
    try:
        assert ready.wait(READY_S), "the streams did not begin"
        yield total
    finally:
        stop.set()
        process.join(READY_S)
        process.kill()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def metric(load: LoadProcess, name: str) -> float:
    """Return one number of the scheduler."""
    with urllib.request.urlopen(load.metrics_url, timeout=10) as page:  # noqa: S310 our own
        lines = page.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def told(name: str, found: OrderResult) -> str:
    """Return one turn as a line."""
    return (
        f"{name:9} p50 {found.p50_ms:6.2f} ms  p99 {found.p99_ms:6.2f} ms  "
        f"scheduler {100 * found.scheduler_cpu_s / found.seconds:5.1f} % of a core  "
        f"store {100 * found.store_cpu_s / found.seconds:5.1f} %  late {found.late_p99_ms:.1f} ms"
    )


async def measure(readers: int, sessions: int, turns: int) -> None:
    """Take the turns and print them."""
    order = Paced(sessions=sessions, seconds=SECONDS)
    async with running_system() as load:
        url = load.metrics_url.removesuffix("/metrics")
        found: dict[str, list[OrderResult]] = {"without": [], "with": []}
        sent = 0
        # Of streams alone, before sessions: memory that was freed once hides what they cost.
        rss = -metric(load, "process_resident_memory_bytes")
        with open_consoles(url, readers):
            rss += metric(load, "process_resident_memory_bytes")
        # Once to warm up: the first sessions of a process cost more.
        await load.follow(Paced(sessions=sessions, seconds=3.0), LIMIT_S)
        for turn in range(3 * turns):
            for name in ("without", "with") if turn % 2 == 0 else ("with", "without"):
                if name == "without":
                    result = await load.follow(order, LIMIT_S)
                else:
                    with open_consoles(url, readers) as total:
                        before = total.value
                        result = await load.follow(order, LIMIT_S)
                        sent = total.value - before
                is_busy = result.late_p99_ms > LATE_MS_MAX
                say(told(name, result) + (", does not count" if is_busy else ""))
                if not is_busy:
                    found[name].append(result)
            if min(map(len, found.values())) >= turns:
                break
        show(found, readers, rss / readers, sent / readers / SECONDS)
        say(f"dropped {metric(load, 'scheduler_console_readers_dropped_total'):.0f}")


def show(
    found: dict[str, list[OrderResult]], readers: int, rss_bytes: float, sent_bytes: float
) -> None:
    """Print what the turns have in common."""
    p50, p99 = (
        {
            name: statistics.median(getattr(result, field) for result in results)
            for name, results in found.items()
        }
        for field in ("p50_ms", "p99_ms")
    )
    cpu = {
        name: statistics.median(100 * one.scheduler_cpu_s / one.seconds for one in results)
        for name, results in found.items()
    }
    say(", ".join(f"{len(results)} turns {name}" for name, results in found.items()))
    for name, ms in (("p50", p50), ("p99", p99)):
        change = 100 * (ms["with"] / ms["without"] - 1)
        say(f"{name} overhead {ms['without']:.2f} -> {ms['with']:.2f} ms: {change:+.1f} %")
    say(
        f"CPU of the scheduler {cpu['without']:.1f} -> {cpu['with']:.1f} % of a core for {readers} "
        f"readers; memory {rss_bytes / 1024:.0f} KB and about {sent_bytes / 1024:.1f} KB/s for each"
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    asyncio.run(measure(args.readers, args.sessions, args.turns))


if __name__ == "__main__":
    main()
