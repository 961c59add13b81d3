"""`--share` of `lingua serve` and `lingua up`: for the phones in this network, by a QR code.

Browsers give the microphone only to pages that came over HTTPS. So a certificate is made for the
machine's address, as `lingua init` does, once, in the data directory; nobody else vouches for it,
and browsers say so. The code holds the address and a token that lasts as long as a day's work.
"""

from __future__ import annotations

import hashlib
import shlex
import socket
import ssl
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_cli.qr_code import half_blocks, qr_code
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.commands.init_files import (
    CERTIFICATE,
    NODE_TOKEN,
    SETTINGS,
    InitOptions,
    make_files,
    write_tokens,
)
from lingua_scheduler.config import check_settings, load_settings
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lingua_scheduler.config import Settings

FOLDER: Final = "share"
NODE_ID: Final = "node-1"
TOKEN_S: Final = 12 * 3600
# An address for documentation, to which nothing is sent: it only chooses the way out.
ANYWHERE: Final = ("192.0.2.1", 9)


def network_address() -> str:
    """Return the address under which other machines of the network reach this one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANYWHERE)
        except OSError:
            problem = "this machine has no network; name the address: --share ADDRESS"
            raise ConfigError("server.host", problem) from None
        return str(probe.getsockname()[0])


def shared_settings(settings: Settings, address: str) -> Settings:
    """Return the settings of a service for this network, with keys and a certificate of its own."""
    if settings.auth.client_keys or settings.auth.node_keys or settings.server.tls_cert_file:
        problem = "the settings have keys or a certificate: `lingua serve` without --share has them"
        raise ConfigError("auth.client_keys", problem)
    folder = share_folder(settings)
    made = _made(folder)
    if made is None or made.server.host != address:
        # Keys and certificate belong together: another address means another service.
        make_files(_options(folder, address, settings.server.port), force=True)
        made = load_settings(folder / SETTINGS, {})
    else:
        _renew_tokens(folder, made)
    server = msgspec.structs.replace(
        settings.server,
        host=address,
        tls_cert_file=made.server.tls_cert_file,
        tls_key_file=made.server.tls_key_file,
    )
    shared = msgspec.structs.replace(settings, server=server, auth=made.auth)
    check_settings(shared)
    return shared


def _renew_tokens(folder: Path, made: Settings) -> None:
    """Replace the tokens of a former start, which may have expired; the keys stay."""
    keys = TokenKeys(made.auth.client_keys, made.auth.node_keys)
    try:
        write_tokens(folder, keys, NODE_ID)
    except OSError as error:
        raise LinguaError(f"cannot write {error.filename}: {error.strerror}") from error


def share_folder(settings: Settings) -> Path:
    """Return the folder of the keys and the certificate."""
    return settings.data_dir / FOLDER


def _made(folder: Path) -> Settings | None:
    """Return the settings that were made before; None if there are none that can be used."""
    if not (folder / SETTINGS).exists():
        return None
    try:
        return load_settings(folder / SETTINGS, {})
    except ConfigError:
        return None


def _options(folder: Path, address: str, port: int) -> InitOptions:
    names = (address, socket.gethostname())
    return InitOptions(folder=folder, names=names, listen=address, port=port, node_id=NODE_ID)


def share_text(settings: Settings, url: str) -> str:
    """Return what `lingua serve` prints: how phones come here, and how a node does."""
    return "\n".join((*page_lines(settings, url), *_node_lines(settings, url)))


def page_lines(settings: Settings, url: str) -> Iterator[str]:
    """Return the address of the page, its code, and what browsers will say."""
    keys = TokenKeys(settings.auth.client_keys, settings.auth.node_keys)
    page = f"{url}/#token={keys.issue_client(rooms=True, ttl_s=TOKEN_S).reveal()}"
    yield "for the phones in this network: open this address, or point a camera at the code"
    yield f"  {page}"
    yield half_blocks(qr_code(page))
    yield f"Whoever has the code can speak and listen here for {TOKEN_S // 3600} hours."
    yield "Browsers will warn that nobody vouches for the certificate: this machine has made it."
    yield "`Advanced`, `Proceed` goes on, and the microphone works after that. Its fingerprint:"
    yield f"  {fingerprint(share_folder(settings) / CERTIFICATE)}"


def _node_lines(settings: Settings, url: str) -> Iterator[str]:
    folder = share_folder(settings)
    certificate = folder / CERTIFICATE
    node_url = f"{url.replace('http', 'ws', 1)}/ws/node"
    yield "a node on this machine:"
    yield (
        f'  LINGUA_NODE_TOKEN="$(cat {shlex.quote(str(folder / NODE_TOKEN))})" lingua node'
        f" --engines default --node-id {NODE_ID} --ca {shlex.quote(str(certificate))}"
        f" --url {node_url}"
    )


def fingerprint(certificate: Path) -> str:
    """Return the SHA-256 of a certificate, as browsers show it."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))
