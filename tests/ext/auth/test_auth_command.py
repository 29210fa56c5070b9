"""`gymq auth init` and `gymq auth show`."""

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from gymq.bus import BusError
from gymq.cluster.server.process import find_binary
from gymq.errors import UsageError
from gymq.ext.auth.command import init, show
from gymq.ext.auth.roles import ROLES

NAMES = {role.name for role in ROLES}


def passwords(folder: Path) -> dict[str, str]:
    return {file.stem: file.read_text().strip() for file in folder.glob("*.password")}


def is_valid(configuration: Path) -> bool:
    return subprocess.run([find_binary(), "-t", "-c", configuration], capture_output=True).returncode == 0


def test_there_is_a_password_for_each_role_and_no_two_are_alike(tmp_path: Path) -> None:
    init(folder=tmp_path / "auth")
    found = passwords(tmp_path / "auth")
    assert set(found) == NAMES
    assert len(set(found.values())) == len(NAMES)
    assert all(len(password) >= 43 for password in found.values())


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        init(folder=tmp_path / "auth")
    finally:
        os.umask(before)
    folder = tmp_path / "auth"
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()} == {
        **{f"{name}.password": "0o600" for name in NAMES},
        "nats-server.conf": "0o600",
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nats_server_takes_the_configuration(tmp_path: Path) -> None:
    init(folder=tmp_path / 'a "quoted" folder', host="::1")
    assert is_valid(tmp_path / 'a "quoted" folder' / "nats-server.conf")


def test_settings_of_ones_own_go_into_a_file_that_includes_it(tmp_path: Path) -> None:
    init(folder=tmp_path)
    (tmp_path / "mine.conf").write_text("include ./nats-server.conf\nserver_name: mine\nmax_payload: 4MB\n")
    assert is_valid(tmp_path / "mine.conf")


def test_what_is_stored_is_limited_below_the_free_disk_of_this_machine(tmp_path: Path) -> None:
    init(folder=tmp_path / "here")
    limit = re.search(r"max_file: (\d+)", (tmp_path / "here" / "nats-server.conf").read_text())
    assert limit is not None
    assert 0 < int(limit[1]) < shutil.disk_usage(tmp_path).total
    init(folder=tmp_path / "there", store=Path("/streams/of/another/machine"))
    assert "max_file" not in (tmp_path / "there" / "nats-server.conf").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    init(folder=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UsageError, match="--force"):
        init(folder=tmp_path, port=5222)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_force_keeps_passwords_and_replaces_a_deleted_one_alone(tmp_path: Path) -> None:
    init(folder=tmp_path)
    before = passwords(tmp_path)
    (tmp_path / "model.password").unlink()
    init(folder=tmp_path, port=5222, force=True)
    after = passwords(tmp_path)
    assert {name for name in NAMES if before[name] != after[name]} == {"model"}
    configuration = (tmp_path / "nats-server.conf").read_text()
    assert "port: 5222" in configuration
    assert after["model"] in configuration
    assert before["model"] not in configuration


def test_a_damaged_password_is_refused_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "agent.password").write_text('" } }')
    with pytest.raises(BusError, match=r"agent\.password"):
        init(folder=tmp_path)
    assert (tmp_path / "agent.password").read_text() == '" } }'


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        init(folder=tmp_path / "file" / "auth")


def test_a_host_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--host"):
        init(folder=tmp_path / "auth", host="")
    assert not (tmp_path / "auth").exists()


def test_half_a_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tls-key"):
        init(folder=tmp_path / "auth", tls_cert=tmp_path / "cert.pem")
    assert not (tmp_path / "auth").exists()


def test_passwords_on_an_open_network_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(folder=tmp_path / "here")
    assert "TLS" not in capsys.readouterr().err
    init(folder=tmp_path / "everywhere", host="0.0.0.0")
    assert "TLS" in capsys.readouterr().err


def test_init_and_show_print_no_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(folder=tmp_path)
    show(folder=tmp_path)
    for name in NAMES:
        show(name, folder=tmp_path)
    show(folder=tmp_path, json=True)
    printed = capsys.readouterr()
    assert "***" in printed.out
    assert not [name for name, password in passwords(tmp_path).items() if password in printed.out + printed.err]


def test_show_lists_the_roles_and_whose_password_is_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(folder=tmp_path)
    (tmp_path / "operator.password").unlink()
    capsys.readouterr()
    show(folder=tmp_path, json=True)
    shown = {entry["name"]: entry for entry in map(json.loads, capsys.readouterr().out.splitlines())}
    assert set(shown) == NAMES
    assert [name for name, entry in shown.items() if not entry["has_password"]] == ["operator"]
    assert "gym.rollouts.*.*.*" in shown["agent"]["publish"]
    assert "gym.rollouts.*.*.*" not in shown["model"]["publish"]


def test_show_tells_all_subjects_of_a_role(capsys: pytest.CaptureFixture[str]) -> None:
    show("resources")
    words = set(capsys.readouterr().out.split())
    (role,) = [role for role in ROLES if role.name == "resources"]
    assert {subject.split()[0] for subject in (*role.publish, *role.subscribe)} <= words


def test_an_unknown_role_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=re.escape("the roles are client, viewer, trainer, bridge, agent")):
        show("root")
