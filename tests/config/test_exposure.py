"""Addresses beyond this machine: allowed with keys and TLS, or when told so in as many words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flintmq.frontends
from flintmq.config.table import SETTINGS, Config
from flintmq.daemon.exposure import Exposed, check_exposure, is_loopback
from flintmq.frontends.front_end import FRONT_ENDS, Offered

FRONTENDS = Path(flintmq.frontends.__path__[0])
TLS: dict[str, Any] = {"tls_cert": Path("c"), "tls_key": Path("k")}


def config(**values: Any) -> Config:
    return Config(data_dir=Path("/x"), **{"listen": ("0.0.0.0", 7600), **values})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "::1%lo", "localhost"])
def test_this_machine_alone_is_always_allowed(host: str) -> None:
    assert is_loopback(host)
    assert check_exposure(config(listen=(host, 1), http=(host, 2)), has_keys=False) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "broker", "localhost.example", ""])
def test_other_machines_need_keys_and_tls(host: str) -> None:
    listen = (host, 7600)

    with pytest.raises(Exposed, match="without keys and without TLS"):
        check_exposure(config(listen=listen), has_keys=False)
    with pytest.raises(Exposed, match="without TLS: keys and messages can be read"):
        check_exposure(config(listen=listen), has_keys=True)
    with pytest.raises(Exposed, match="without keys: anyone can connect"):
        check_exposure(config(listen=listen, **TLS), has_keys=False)
    assert check_exposure(config(listen=listen, **TLS), has_keys=True) == []


def test_the_http_port_counts_as_well_and_the_error_names_place_and_remedy() -> None:
    inside = ("127.0.0.1", 7600)

    with pytest.raises(Exposed) as refused:
        check_exposure(config(listen=inside, http=("::", 7601)), has_keys=False)
    said = str(refused.value)
    assert said.startswith("http [::]:7601 can be reached from other machines")
    for remedy in ("127.0.0.1", "flintmq key add", "tls_cert", "tls_key", "--insecure"):
        assert remedy in said


def test_keys_that_are_not_asked_for_do_not_count() -> None:
    with pytest.raises(Exposed, match="without keys"):
        check_exposure(config(auth="off", **TLS), has_keys=True)
    assert check_exposure(config(auth="required", **TLS), has_keys=False) == []


def test_client_certificates_say_who_somebody_is_as_keys_do() -> None:
    assert check_exposure(config(tls_client_ca=Path("ca"), **TLS), has_keys=False) == []


def test_insecure_allows_it_with_a_warning_for_each_address() -> None:
    open_wide = config(insecure=True, http=("0.0.0.0", 7601))

    warnings = check_exposure(open_wide, has_keys=False)
    assert [warning.split()[0] for warning in warnings] == ["listen", "http"]
    assert check_exposure(config(insecure=True, **TLS), has_keys=True) == []


ADDRESSES = [setting.name for setting in SETTINGS if setting.is_address]


@pytest.mark.parametrize("name", ADDRESSES)
def test_every_address_a_broker_can_have_is_looked_at(name: str) -> None:
    inside = {"listen": ("127.0.0.1", 7600)}

    with pytest.raises(Exposed, match=rf"^{name} 0\.0\.0\.0:7 can be reached .*without (keys|TLS)"):
        check_exposure(config(**{**inside, name: ("0.0.0.0", 7)}), has_keys=False)


def test_every_front_end_listens_where_one_of_these_addresses_says() -> None:
    packages = [path.parent.name for path in FRONTENDS.glob("*/assembly.py")]

    assert sorted(one.name for one in FRONT_ENDS) == sorted(packages)
    assert {one.name for one in FRONT_ENDS} | {"listen", "http", "peer_listen"} == set(ADDRESSES)


@pytest.mark.parametrize("one", FRONT_ENDS, ids=lambda one: one.name)
def test_keys_count_only_where_clients_are_asked_for_them(one: Offered) -> None:
    wide: dict[str, Any] = {"listen": ("127.0.0.1", 7600), one.name: ("0.0.0.0", 7), **TLS}

    if one.asks_for_keys:
        assert check_exposure(config(**wide), has_keys=True) == []
    else:
        with pytest.raises(Exposed, match="without keys: anyone can connect"):
            check_exposure(config(**wide), has_keys=True)
