"""The files of `lingua init`: keys, tokens, a certificate and settings, in one folder.

All contents are made before the first file is written, and existing files are overwritten only on
request. Only the owner can read secrets. The `openssl` program makes the certificate: Python cannot
make one, and one certificate a year does not justify a library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lingua_scheduler.auth.tokens import TTL_S_MAX, TokenKeys, new_key
from lingua_scheduler.config import load_settings
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from lingua_scheduler.secret import Secret

SETTINGS, CERTIFICATE, PRIVATE_KEY = "lingua.toml", "certificate.pem", "certificate.key"
ADMIN_TOKEN, CLIENT_TOKEN, NODE_TOKEN = "admin.token", "client.token", "node.token"
DATA: Final = "data"
OPENSSL: Final = "openssl"
OPENSSL_S: Final = 60
# The longest validity that browsers and systems accept.
CERTIFICATE_DAYS: Final = 825
NEAR: Final = ("localhost", "127.0.0.1", "::1")
PUBLIC, SECRET = 0o644, 0o600

# Self-signed: a machine that trusts it trusts this service and, by the path length, no other.
REQUEST: Final = """\
[req]
prompt = no
distinguished_name = name
x509_extensions = extensions
[name]
CN = {name}
[extensions]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, digitalSignature, keyCertSign
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
subjectAltName = {names}
"""
TOML: Final = """\
# Made by `lingua init` for `lingua serve --config {file}`. It holds keys: keep it to the machines
# that serve. All settings: docs/config.md.
{deployment}
data_dir = {data}

[server]
host = {listen}
port = {port}
tls_cert_file = {certificate}
tls_key_file = {key}

[auth]
client_keys = [{client_key}]
node_keys = [{node_key}]
"""


class FilesExist(LinguaError):
    """The folder already has these files; nothing was changed."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.names = tuple(names)
        super().__init__(
            f"{folder} already has {', '.join(names)}; nothing was changed. --force makes all "
            "files again: tokens made with the old keys become invalid"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOptions:
    """What the files are made for."""

    folder: Path
    # Names of the service: in the certificate, and in the commands for other machines.
    names: tuple[str, ...]
    listen: str
    port: int
    node_id: str
    # The URL of a shared store; empty: a private one.
    store: str = ""


def make_files(options: InitOptions, *, force: bool) -> None:
    """Make the whole folder; raises `FilesExist`, or another error if it cannot be made."""
    names = (SETTINGS, CERTIFICATE, PRIVATE_KEY, ADMIN_TOKEN, CLIENT_TOKEN, NODE_TOKEN)
    existing = [name for name in names if (options.folder / name).exists()]
    if existing and not force:
        raise FilesExist(options.folder, existing)
    client_key, node_key = new_key(), new_key()
    keys = TokenKeys([client_key], [node_key])
    certificate, private_key = _certificate(options.names)
    settings = _settings(options, client_key, node_key)
    _check(settings)
    try:
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(options.folder / CERTIFICATE, certificate, PUBLIC)
        _write(options.folder / PRIVATE_KEY, private_key, SECRET)
        write_tokens(options.folder, keys, options.node_id)
        # Last: if this file exists, all others do.
        _write(options.folder / SETTINGS, settings, SECRET)
    except OSError as error:
        raise LinguaError(f"cannot write {error.filename}: {error.strerror}") from error


def write_tokens(folder: Path, keys: TokenKeys, node_id: str) -> None:
    """Make new tokens with these keys, in place of former ones; OSError if they cannot be."""
    tokens = {
        ADMIN_TOKEN: keys.issue_client(scopes=("admin",), ttl_s=TTL_S_MAX),
        CLIENT_TOKEN: keys.issue_client(ttl_s=TTL_S_MAX),
        NODE_TOKEN: keys.issue_node(node_id, ttl_s=TTL_S_MAX),
    }
    for name, token in tokens.items():
        _write(folder / name, f"{token.reveal()}\n", SECRET)


def _settings(options: InitOptions, client_key: Secret, node_key: Secret) -> str:
    folder = options.folder.absolute()
    deployment = 'deployment_mode = "local"'
    if options.store:
        deployment = f'deployment_mode = "cross_instance"\nredis.url = {_toml(options.store)}'
    return TOML.format(
        file=folder / SETTINGS,
        deployment=deployment,
        data=_toml(folder / DATA),
        listen=_toml(options.listen),
        port=options.port,
        certificate=_toml(folder / CERTIFICATE),
        key=_toml(folder / PRIVATE_KEY),
        client_key=_toml(client_key.reveal()),
        node_key=_toml(node_key.reveal()),
    )


def _check(settings: str) -> None:
    """Load the settings as `lingua serve` will, before any file is written: a URL may be wrong."""
    with tempfile.TemporaryDirectory(prefix="lingua-init-") as place:
        file = Path(place) / SETTINGS
        _write(file, settings, SECRET)
        load_settings(file, {})


def _toml(text: str | Path) -> str:
    """Return a text as a TOML string; basic strings are written as in JSON."""
    return json.dumps(str(text), ensure_ascii=False)


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file completely or not at all; it never has wider permissions than `mode`."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as out:
            os.fchmod(out.fileno(), mode)
            out.write(text)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _certificate(names: tuple[str, ...]) -> tuple[str, str]:
    """Return a certificate for these names, and its key."""
    program = shutil.which(OPENSSL)
    if program is None:
        raise ConfigError(
            "",
            f"the program `{OPENSSL}`, which makes the certificate, is not on the PATH: "
            "install it (apt install openssl, brew install openssl)",
        )
    alternatives = ", ".join(map(_alternative, dict.fromkeys((*names, *NEAR))))
    with tempfile.TemporaryDirectory(prefix="lingua-init-") as place:
        request, out, key = (Path(place) / name for name in ("request", "out", "key"))
        request.write_text(REQUEST.format(name=names[0][:64], names=alternatives))
        command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days"
        files = ("-config", str(request), "-keyout", str(key), "-out", str(out))
        done = subprocess.run(  # noqa: S603 the names were checked
            [program, *command.split(), str(CERTIFICATE_DAYS), *files],
            capture_output=True,
            text=True,
            timeout=OPENSSL_S,
            check=False,
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no error message"])[-1]
            raise LinguaError(f"`{OPENSSL} req` made no certificate: {why}")
        return out.read_text(), key.read_text()


def _alternative(name: str) -> str:
    try:
        return f"IP:{ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"
