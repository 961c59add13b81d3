import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lingua_cli.main import main
from lingua_scheduler.config import Settings, to_toml

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run where neither a lingua.toml nor a variable of ours changes the settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("LINGUA_", "XDG_"))]:
        monkeypatch.delenv(name)
    return tmp_path


def test_print_shows_all_settings_as_toml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "print"]) == 0
    assert capsys.readouterr().out == to_toml(Settings())


def test_print_shows_json_on_demand_and_masks_the_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_DEPLOYMENT_MODE", "cross_instance")
    monkeypatch.setenv("LINGUA_REDIS__URL", "redis://:PASSWORD@host/0")
    assert main(["config", "print", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["redis"]["url"] == "redis://***@host/0"
    assert shown["jobs"]["attempts_max"] == 3


def test_check_says_where_the_settings_come_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["config", "check"]) == 0
    assert capsys.readouterr().out == "ok\nfile: none\nenvironment: none\n"
    Path("mine.toml").write_text("cells = 2")
    monkeypatch.setenv("LINGUA_JOBS__GAP_MS", "500")
    monkeypatch.setenv("LINGUA_CELLS", "4")
    assert main(["--config", "mine.toml", "config", "check"]) == 0
    expected = "ok\nfile: mine.toml\nenvironment: LINGUA_CELLS, LINGUA_JOBS__GAP_MS\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("action", ["print", "check"])
def test_a_wrong_setting_is_one_line_on_stderr_and_exit_code_2(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("lingua.toml").write_text("[jobs]\ngap_ms = 'soon'")
    assert main(["config", action]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "lingua: jobs.gap_ms: must be a whole number from 100 to 3600000, "
        "got: 'soon' (from lingua.toml)\n"
    )


def test_check_reads_the_certificate_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_DEPLOYMENT_MODE", "cross_instance")
    monkeypatch.setenv("LINGUA_REDIS__URL", "rediss://host")
    monkeypatch.setenv("LINGUA_REDIS__TLS_CA_FILE", "absent.pem")
    assert main(["config", "check"]) == 2
    assert "lingua: redis.tls_ca_file: cannot be used" in capsys.readouterr().err


def test_check_reads_the_glossaries_of_tenants(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lingua.toml").write_text("[[tenants]]\nid = 'acme'\nglossary_file = 'acme.toml'\n")
    assert main(["config", "check"]) == 2
    assert "tenants[0].glossary_file: cannot read acme.toml" in capsys.readouterr().err
    Path("acme.toml").write_text("ledger = { es = 'libro mayor' }")
    assert main(["config", "check"]) == 0


def test_config_does_not_import_what_it_does_not_need() -> None:
    script = (
        "import sys; from lingua_cli.main import main; main(['config', 'check']);"
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('lingua_sch')"
        " and '.' in name})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert set(done.stdout.splitlines()[-1].split()) == {"commands", "config", "errors", "secret"}
