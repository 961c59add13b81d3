"""Settings: sources, bounds, rules between settings, documentation, masked secrets."""

import re
import ssl
import tomllib
from pathlib import Path

import msgspec
import pytest

from lingua_scheduler.config import (
    WORKERS_MAX,
    RedisSettings,
    Settings,
    Tenant,
    describe,
    describe_sections,
    load_settings,
    resolve_instance_id,
    resolve_workers,
    setting_variables,
    settings_file,
    ssl_context,
    to_toml,
)
from lingua_scheduler.config.derived import usable_cores
from lingua_scheduler.secret import SecretUrl
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

# A public certificate only; its key was never kept.
AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBmDCCAT2gAwIBAgIUV20Zz48rDB5o0WVozk1nDhMek0cwCgYIKoZIzj0EAwIw
IDEeMBwGA1UEAwwVbGluZ3VhIHRlc3QgYXV0aG9yaXR5MCAXDTI2MTExNTIxNDg0
MVoYDzIxMjYxMDIyMjE0ODQxWjAgMR4wHAYDVQQDDBVsaW5ndWEgdGVzdCBhdXRo
b3JpdHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASqcteipHa++dFmicwDo4Mo
CyWdJdv3Kuel4WpzkQcK2Ytp7Z+w/3ZG/T92hSh2bl9UXwphIwANQk+iCiqDZ5xX
o1MwUTAdBgNVHQ4EFgQUR7piztEspCqLoOPH9VzFGJzcEVEwHwYDVR0jBBgwFoAU
R7piztEspCqLoOPH9VzFGJzcEVEwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD
AgNJADBGAiEA30JBNMfcurfW5NGIibiFOB/HfmRuAD1E0Ily4nCbzkQCIQCvaCE3
Aqr0YRjRKldhwDH+bt5HZVrX18b0yoyXOwuqAA==
-----END CERTIFICATE-----
"""

EXTERNAL = {"LINGUA_DEPLOYMENT_MODE": "cross_instance"}
CLUSTER = {**EXTERNAL, "LINGUA_REDIS__MODE": "cluster"}


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run where no lingua.toml lies around."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def from_toml(text: str, environ: dict[str, str] | None = None) -> Settings:
    file = Path("given.toml")
    file.write_text(text)
    return load_settings(file, environ or {})


def problem_of(text: str = "", environ: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        from_toml(text, environ)
    return caught.value


# Sources.


def test_nothing_given_is_a_local_instance() -> None:
    settings = load_settings(None, {})
    assert settings == Settings()
    assert settings.deployment_mode == "local"


def test_the_file_changes_only_what_it_names() -> None:
    settings = from_toml("[jobs]\nattempts_max = 2\n")
    assert settings.jobs.attempts_max == 2
    assert settings.jobs.pending_ms == Settings().jobs.pending_ms


def test_the_environment_wins_over_the_file() -> None:
    settings = from_toml(
        "[jobs]\nattempts_max = 2\ngap_ms = 700\n", {"LINGUA_JOBS__ATTEMPTS_MAX": "5"}
    )
    assert (settings.jobs.attempts_max, settings.jobs.gap_ms) == (5, 700)


def test_the_file_is_the_given_one_then_the_variables_then_the_one_in_this_directory() -> None:
    given, named = Path("given.toml"), Path("named.toml")
    assert settings_file(None, {}) is None
    Path("lingua.toml").write_text("cells = 2")
    assert settings_file(None, {}) == Path("lingua.toml")
    assert settings_file(None, {"LINGUA_CONFIG": ""}) == Path("lingua.toml")
    assert settings_file(None, {"LINGUA_CONFIG": str(named)}) == named
    assert settings_file(given, {"LINGUA_CONFIG": str(named)}) == given
    assert load_settings(None, {}).cells == 2


def test_variables_of_other_programs_and_of_our_own_tests_are_not_settings() -> None:
    environ = {"PATH": "/bin", "LINGUA_CONFIG": "", "LINGUA_MODEL_STEPS": "9", "LINGUA_CELLS": "3"}
    assert setting_variables(environ) == ["LINGUA_CELLS"]
    assert load_settings(None, environ).cells == 3


@pytest.mark.parametrize(
    "value",
    [
        '[{id = "acme", labels = ["eu", "gpu-a"], cells = 1}]',
        '[{"id": "acme", "labels": ["eu", "gpu-a"], "cells": 1}]',
    ],
    ids=["toml", "json"],
)
def test_lists_of_tables_come_from_the_environment_as_toml_or_json(value: str) -> None:
    settings = load_settings(None, {"LINGUA_TENANTS": value})
    assert settings.tenants == (Tenant(id="acme", labels=("eu", "gpu-a"), cells=1),)


def test_a_whole_section_from_the_environment_is_merged() -> None:
    environ = {"LINGUA_JOBS": "{gap_ms = 700}", "LINGUA_JOBS__ATTEMPTS_MAX": "5"}
    settings = from_toml("[jobs]\nbinding_ms = 80000\n", environ)
    assert (settings.jobs.gap_ms, settings.jobs.attempts_max) == (700, 5)
    assert settings.jobs.binding_ms == 80_000


@pytest.mark.parametrize(("raw", "value"), [("true", True), ("false", False)])
def test_switches_come_from_the_environment_as_words(raw: str, value: bool) -> None:
    assert load_settings(None, {"LINGUA_JOBS__SPREAD": raw}).jobs.spread is value


def test_text_from_the_environment_is_taken_as_it_is() -> None:
    assert load_settings(None, {"LINGUA_REDIS__KEY_PREFIX": "123"}).redis.key_prefix == "123"


def test_every_setting_can_be_given_by_its_variable() -> None:
    for row in describe():
        if row.default and "[" not in row.path and row.path != "data_dir":
            raw = row.default.strip('"')
            assert load_settings(None, {row.variable: raw}) == Settings(), row.path


def test_the_data_directory_follows_xdg_and_expands_the_home_directory() -> None:
    home = Path.home()
    assert load_settings(None, {}).data_dir == home / ".local/share/lingua"
    assert load_settings(None, {"XDG_DATA_HOME": "/srv"}).data_dir == Path("/srv/lingua")
    environ = {"XDG_DATA_HOME": "/srv", "LINGUA_DATA_DIR": "~/lingua"}
    assert load_settings(None, environ).data_dir == home / "lingua"


def test_a_user_without_a_home_is_asked_for_a_data_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 5)
    assert problem_of().path == "data_dir"
    assert from_toml("data_dir = '/srv/lingua'").data_dir == Path("/srv/lingua")


def test_the_tree_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings().jobs.gap_ms = 1  # type: ignore[misc]


# Refusals of one value.


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ("[jobs]\npendng_ms = 1", "jobs.pendng_ms", "did you mean jobs.pending_ms?"),
        ("pending_ms = 1", "pending_ms", "did you mean jobs.pending_ms?"),
        ("[job]\npending_ms = 1", "job", "did you mean jobs?"),
        ("[[tenants]]\nid = 'a'\npool = []", "tenants[0].pool", "did you mean tenants[].pools?"),
        ("qqqqqq = 1", "qqqqqq", "is not a setting (from given.toml)"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known(text: str, path: str, hint: str) -> None:
    problem = problem_of(text)
    assert problem.path == path
    assert hint in problem.problem


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LINGUA_REDIS_URL", "did you mean LINGUA_REDIS__URL?"),
        ("LINGUA_CONFG", "did you mean LINGUA_CONFIG?"),
        ("LINGUA_redis__url", "is not a setting"),
        ("LINGUA_TENANTS[]__ID", "is not a setting"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known(name: str, hint: str) -> None:
    problem = problem_of(environ={name: "x"})
    assert problem.path == name
    assert hint in problem.problem


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("cells = 0", "cells", "must be a whole number from 1 to 1024, got: 0"),
        ("cells = '2'", "cells", "must be a whole number from 1 to 1024, got: '2'"),
        ("cells = true", "cells", "must be a whole number from 1 to 1024, got: True"),
        ("cells = 1.5", "cells", "must be a whole number from 1 to 1024, got: 1.5"),
        ("deployment_mode = 'x'", "deployment_mode", 'must be "local" or "cross_instance"'),
        ("[jobs]\nspread = 1", "jobs.spread", "must be true or false, got: 1"),
        ("jobs = 1", "jobs", "must be a table of settings"),
        ("tenants = 1", "tenants", "must be a list of tables, got: 1"),
        ("tenants = [1]", "tenants[0]", "must be a table of settings"),
        ("[[tenants]]\ncells = 1", "tenants[0].id", "is needed"),
        ("[[tenants]]\nid = 'a b'", "tenants[0].id", "1 to 128 characters"),
        ("[[tenants]]\nid = 'a'\npools = ['{x}']", "tenants[0].pools", "got: ['{x}']"),
        ("[[tenants]]\nid = 'a'\nlabels = ['-b']", "tenants[0].labels", "got: ['-b']"),
        ("[redis]\nkey_prefix = 'a{b}'", "redis.key_prefix", "got: 'a{b}'"),
        ('[redis]\nkey_prefix = "a\\n"', "redis.key_prefix", "1 to 32 characters"),
        ("[redis]\nurl = 5", "redis.url", "must be a URL, got: a int"),
        ("instance_id = ''", "instance_id", "1 to 128 characters"),
        ("data_dir = ''", "data_dir", "must be a path, got: ''"),
        ("data_dir = '~no-such-user-here/x'", "data_dir", "must be a path"),
        ("data_dir = 2020-01-01", "data_dir", "must be a path"),
    ],
)
def test_an_impossible_value_is_refused_with_what_is_allowed(
    text: str, path: str, expected: str
) -> None:
    problem = problem_of(text)
    assert problem.path == path
    assert expected in problem.problem
    assert "(from given.toml)" in problem.problem


def test_what_was_named_pools_and_is_no_label_is_refused_with_what_to_do() -> None:
    problem = problem_of("[[tenants]]\nid = 'a'\npools = ['a:b']")
    assert problem.path == "tenants[0].pools"
    assert "are labels of nodes now (set tenants[].labels" in problem.problem
    many = ", ".join(f"'l{number}'" for number in range(17))
    assert problem_of(f"[[tenants]]\nid = 'a'\nlabels = [{many}]").path == "tenants[0].labels"


@pytest.mark.parametrize("raw", ["many", "", "1\ncells = 2", "[", "2.5"])
def test_a_number_from_the_environment_that_is_none_is_refused(raw: str) -> None:
    problem = problem_of(environ={"LINGUA_JOBS__GAP_MS": raw})
    assert problem.path == "jobs.gap_ms"
    assert "from 100 to 3600000" in problem.problem
    assert "(from LINGUA_JOBS__GAP_MS)" in problem.problem


def test_bounds_are_inclusive() -> None:
    for row in describe():
        bounds = re.fullmatch(r"a whole number from (\d+) to (\d+)", row.allowed)
        if not bounds or "[" in row.path:
            continue
        low, high = (int(bound) for bound in bounds.groups())
        for outside in (low - 1, high + 1):
            assert problem_of(environ={row.variable: str(outside)}).path == row.path
        for inside in (low, high):
            try:
                load_settings(None, {row.variable: str(inside)})
            except ConfigError as error:
                # Only a rule between two settings may still object.
                assert "whole number" not in error.problem  # noqa: PT017


@pytest.mark.parametrize("content", [b"cells = ", b"\xff\xfe", b"[redis\n"])
def test_a_file_that_is_not_toml_is_refused_by_name(content: bytes) -> None:
    Path("broken.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"settings file broken\.toml is not TOML"):
        load_settings(Path("broken.toml"), {})


def test_a_file_that_cannot_be_read_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file"):
        load_settings(None, {"LINGUA_CONFIG": "absent.toml"})
    with pytest.raises(ConfigError, match=r"cannot read settings file \.: Is a directory"):
        load_settings(Path(), {})


# Rules between settings.


@pytest.mark.parametrize(
    ("environ", "path", "expected"),
    [
        (EXTERNAL, "redis.url", "is needed"),
        (CLUSTER, "redis.urls", "is needed"),
        (
            {**EXTERNAL, "LINGUA_REDIS__URLS": '["redis://a"]', "LINGUA_REDIS__URL": "redis://a"},
            "redis.urls",
            "is not used with redis.mode `single`",
        ),
        (
            {**CLUSTER, "LINGUA_REDIS__URLS": '["redis://a"]', "LINGUA_REDIS__URL": "redis://a"},
            "redis.url",
            "set redis.urls instead",
        ),
        (
            {**CLUSTER, "LINGUA_REDIS__URLS": '["redis://a", "redis://b/1"]'},
            "redis.urls[1]",
            "no database numbers",
        ),
        (
            {**CLUSTER, "LINGUA_REDIS__URLS": '["unix:///run/a.sock"]'},
            "redis.urls[0]",
            "Unix socket",
        ),
        (
            {**CLUSTER, "LINGUA_REDIS__URLS": '["redis://a", "rediss://b"]'},
            "redis.urls",
            "all be rediss://",
        ),
        ({"LINGUA_REDIS__URL": "redis://a"}, "redis.url", "deployment_mode is `local`"),
        ({"LINGUA_REDIS__URLS": '["redis://a"]'}, "redis.urls", "or remove redis.urls"),
        ({"LINGUA_REDIS__MODE": "cluster"}, "redis.mode", "set deployment_mode to"),
        ({"LINGUA_REDIS__TLS_CA_FILE": "ca.pem"}, "redis.tls_ca_file", "TLS would be off"),
        ({"LINGUA_REDIS__TLS_CERT_FILE": "c.pem"}, "redis.tls_key_file", "go together"),
        ({"LINGUA_REDIS__TLS_KEY_FILE": "k.pem"}, "redis.tls_cert_file", "go together"),
        (
            {"LINGUA_REDIS__TLS_CERT_FILE": "c.pem", "LINGUA_REDIS__TLS_KEY_FILE": "k.pem"},
            "redis.tls_cert_file",
            "TLS would be off",
        ),
    ],
)
def test_a_store_that_does_not_fit_the_mode_is_refused(
    environ: dict[str, str], path: str, expected: str
) -> None:
    problem = problem_of(environ=environ)
    assert problem.path == path
    assert expected in problem.problem


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[jobs]\nattempt_ms = 2000\nack_ms = 2000\nreserve_ms = 1500", "jobs.attempt_ms"),
        ("[jobs]\nattempt_ms = 5000\nack_ms = 50\nreserve_ms = 5000", "jobs.attempt_ms"),
        ("[jobs]\nreserve_ms = 2000\n[redis]\ncall_timeout_ms = 2000", "jobs.reserve_ms"),
        ("[jobs]\npending_ms = 90000", "jobs.binding_ms"),
        ("[jobs]\nsweep_interval_ms = 30000", "sessions.lease_ms"),
        ("[nodes]\nstale_ms = 45000", "nodes.stale_ms"),
        ("[nodes]\nbad_beats = 6", "nodes.bad_beats_window"),
        ("[[tenants]]\nid = 'a'\n[[tenants]]\nid = 'a'", "tenants[1].id"),
        ("[[tenants]]\nid = 'a'\ncells = 2", "tenants[0].cells"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(text: str, path: str) -> None:
    assert problem_of(text).path == path


@pytest.mark.parametrize(
    "text",
    [
        "[jobs]\nattempt_ms = 2001\nack_ms = 2000",
        "[jobs]\npending_ms = 89999",
        "[jobs]\nsweep_interval_ms = 29999",
        "[nodes]\nbad_beats = 5",
        "cells = 2\n[[tenants]]\nid = 'a'\ncells = 2\n[[tenants]]\nid = 'b'",
    ],
)
def test_settings_at_the_edge_of_a_rule_are_taken(text: str) -> None:
    assert isinstance(from_toml(text), Settings)


# URLs and secrets.


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://host:6379/",
        "redis://user:p%40ss@host:6379/15",
        "rediss://[::1]:6380/0",
        "unix:///run/store.sock",
        "unix://:pw@/run/store.sock",
    ],
)
def test_a_store_url_is_taken(url: str) -> None:
    settings = load_settings(None, {**EXTERNAL, "LINGUA_REDIS__URL": url})
    assert settings.redis.url.reveal() == url


@pytest.mark.parametrize(
    "url",
    [
        "http://:PASSWORD@host",
        "redis://:PASSWORD@",
        "redis://:PASSWORD@host:port",
        "redis://:PASSWORD@host:99999",
        "redis://:PASSWORD@host:0",
        "redis://:PASSWORD@host/name",
        "redis://:PASSWORD@host/0/1",
        "redis://:PASS/WORD@host",
        "redis://:PASSWORD@[::1",
        "redis://:PASSWORD@host\n",
        "redis://host?password=PASSWORD",
        "redis://host/0#PASSWORD",
        "unix://:PASSWORD@run/store.sock",
        "unix://:PASSWORD@",
        "PASSWORD",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    problem = problem_of(environ={**EXTERNAL, "LINGUA_REDIS__URL": url})
    assert problem.path == "redis.url"
    assert "must be redis://" in problem.problem
    assert "PASS" not in str(problem)
    assert problem.__cause__ is None
    assert problem.__context__ is None


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ("[redis]\nurl = ['redis://:PASSWORD@a', 'x']", {}),
        ("[redis]\nurls = 'redis://:PASSWORD@a'", {}),
        ("[redis]\nurls = ['PASSWORD', 5]", {}),
        ("redis = 'redis://:PASSWORD@a'", {}),
        ("[redis]\nkey_prefix = 'redis://:PASSWORD@a'", {}),
        ("[redis]\nulr = 'redis://:PASSWORD@a'", {}),
        ("", {"LINGUA_REDIS__URLS": "redis://:PASSWORD@a"}),
        ("", {"LINGUA_REDIS_URL": "redis://:PASSWORD@a"}),
        ("", {"LINGUA_CELLS": "redis://:PASSWORD@" + "a" * 100}),
        ("", {"LINGUA_REDIS__URL": "redis://:PASSWORD@a"}),
    ],
)
def test_a_password_in_the_wrong_place_is_not_shown(text: str, environ: dict[str, str]) -> None:
    assert "PASS" not in str(problem_of(text, environ))


def test_settings_never_show_a_password() -> None:
    environ = {**EXTERNAL, "LINGUA_REDIS__URL": "redis://user:PASSWORD@host:6379/3"}
    settings = load_settings(None, environ)
    for shown in (repr(settings), to_toml(settings), str(msgspec.structs.asdict(settings.redis))):
        assert "PASSWORD" not in shown
        assert "redis://***@host:6379/3" in shown


# TLS.


def test_no_tls_context_without_a_rediss_url() -> None:
    assert ssl_context(Settings()) is None
    assert ssl_context(Settings(redis=RedisSettings(url=SecretUrl("redis://host")))) is None


@pytest.mark.parametrize(
    "redis",
    [
        RedisSettings(url=SecretUrl("REDISS://host")),
        RedisSettings(urls=(SecretUrl("rediss://host"),)),
    ],
    ids=["single", "cluster"],
)
def test_a_rediss_url_checks_certificate_and_host_name(redis: RedisSettings) -> None:
    context = ssl_context(Settings(redis=redis))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_only_the_given_authority_is_trusted() -> None:
    Path("ca.pem").write_text(AUTHORITY)
    context = ssl_context(
        Settings(redis=RedisSettings(url=SecretUrl("rediss://host"), tls_ca_file="ca.pem"))
    )
    assert context is not None
    (authority,) = context.get_ca_certs()
    assert "lingua test authority" in str(authority["subject"])


@pytest.mark.parametrize("content", [None, "not a certificate"])
@pytest.mark.parametrize("name", ["tls_ca_file", "tls_cert_file"])
def test_a_certificate_file_that_cannot_be_used_is_named(name: str, content: str | None) -> None:
    if content is not None:
        Path("x.pem").write_text(content)
    files = {name: "x.pem"}
    if name == "tls_cert_file":
        files["tls_key_file"] = "x.pem"
    settings = Settings(redis=RedisSettings(url=SecretUrl("rediss://host"), **files))
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        ssl_context(settings)
    assert caught.value.path == f"redis.{name}"


# Identity and output.


def test_an_automatic_instance_id_is_new_each_time_and_fit_for_a_key() -> None:
    first, second = (resolve_instance_id(Settings()) for _ in range(2))
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}-\d+-[0-9a-f]{8}", first)


@pytest.mark.parametrize(("text", "workers"), [("1", 1), ("3", 3)])
def test_a_given_number_of_workers_is_kept(text: str, workers: int) -> None:
    settings = load_settings(None, {"LINGUA_SERVER__WORKERS": text})
    assert resolve_workers(settings) == workers


def test_automatic_workers_are_the_usable_cores(tmp_path: Path) -> None:
    settings = load_settings(None, {"LINGUA_SERVER__WORKERS": "auto"})
    assert 1 <= resolve_workers(settings) <= WORKERS_MAX
    quota = tmp_path / "cpu.max"
    cores = usable_cores(quota)
    assert cores >= 1
    for text, usable in (("max 100000", cores), ("100000 100000", 1), ("20000 100000", 1)):
        quota.write_text(f"{text}\n")
        assert usable_cores(quota) == usable


@pytest.mark.parametrize("text", ["0", "65", "some", "1.5"])
def test_an_impossible_number_of_workers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a whole number from 1 to 64"):
        load_settings(None, {"LINGUA_SERVER__WORKERS": text})


def test_a_given_instance_id_is_kept() -> None:
    assert resolve_instance_id(Settings(instance_id="east-1")) == "east-1"


def test_printed_settings_can_be_read_back() -> None:
    text = """
        cells = 3
        data_dir = '/srv/a "quoted" \\ dir'
        [jobs]
        spread = true
        [[tenants]]
        id = "acme"
        pools = ["en-de", "de-en"]
        [[tenants]]
        id = "other"
        cells = 2
    """
    settings = from_toml(text)
    assert from_toml(to_toml(settings)) == settings


def test_control_characters_are_printed_as_toml_takes_them() -> None:
    settings = Settings(data_dir=Path("/srv/\x7f\n\t\u00e9\U0001f600"))
    assert tomllib.loads(to_toml(settings))["data_dir"] == str(settings.data_dir)


def test_every_setting_is_described_in_a_sentence_with_its_bounds() -> None:
    rows = describe()
    assert len({row.path for row in rows}) == len(rows)
    for row in rows:
        assert row.description[:1] in "`ABCDEFGHIJKLMNOPQRSTUVWXYZ", row.path
        assert row.description.endswith("."), row.path
        assert row.allowed, row.path
        assert row.path.endswith("_ms") == (row.unit == "ms"), row.path
        assert row.section in describe_sections(), row.path


def test_the_described_defaults_are_the_real_ones() -> None:
    described = {row.path: row.default for row in describe()}
    assert described["jobs.pending_ms"] == "10000"
    assert described["redis.key_prefix"] == '"lingua"'
    assert described["data_dir"] == "$XDG_DATA_HOME/lingua, else ~/.local/share/lingua"
    assert described["tenants[].id"] == ""
