"""SIGHUP: the configuration is read again, and changes that need no restart are applied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..config.shared import overlaid
from ..config.table import SETTINGS, Config, Setting
from ..errors import FlintError
from ..observe.logs import event
from .exposure import check_exposure
from .notify import READY, notify, notify_reloading

_log = logging.getLogger(__name__)

TLS_SETTINGS = ("tls_cert", "tls_key", "tls_client_ca")
OnReload = Callable[[Config, Config], None]


class Reloading:
    """The configuration in effect, and the parts of the broker that are told when it changes."""

    def __init__(self, config: Config, reread: Callable[[], Config] | None) -> None:
        self.config = self._own = config
        self._shared: Mapping[str, Any] = {}
        self._reread = reread
        self.on_reload: list[OnReload] = []
        """Each is called on SIGHUP with the old and the new configuration, even if they are equal:
        files that it names may have changed. Settings that need a restart keep their old value in
        both. If one raises FlintError, those before it are called again with both swapped."""

    def reload(self, *, has_keys: bool) -> None:
        """Apply the changes. An invalid configuration changes nothing."""
        notify_reloading()
        try:
            self._reload(has_keys)
        except FlintError as error:
            for problem in getattr(error, "problems", [str(error)]):
                event(
                    _log,
                    logging.ERROR,
                    "config_not_reloaded",
                    f"SIGHUP: nothing was changed: {problem}",
                )
        finally:
            notify(READY)

    def _reload(self, has_keys: bool) -> None:
        if self._reread is None:
            event(
                _log,
                logging.WARNING,
                "config_not_reloaded",
                "SIGHUP: this broker has no configuration file or environment to reload",
            )
            return
        wanted = self._reread()
        before, own = self.config, self._own
        differing = changed(own, wanted)
        now = [setting for setting in differing if setting.reload]
        if (before.tls_cert is None) != (wanted.tls_cert is None):
            now = [setting for setting in now if setting.name not in TLS_SETTINGS]
        if later := [setting.name for setting in differing if setting not in now]:
            event(
                _log,
                logging.WARNING,
                "config_needs_restart",
                f"SIGHUP: restart the broker to apply: {', '.join(later)}",
            )
        values = {setting.name: getattr(wanted, setting.name) for setting in now}
        own = msgspec.structs.replace(own, **values, sources=wanted.sources)
        after = overlaid(own, self._shared)
        check_exposure(after, has_keys=has_keys)
        self._take_up(before, after)
        self.config, self._own = after, own
        self._tell_changed("SIGHUP", before, after, now)
        event(
            _log,
            logging.INFO,
            "config_reloaded",
            "SIGHUP: configuration reloaded" + ("" if differing else "; no setting has changed"),
            changed=len(now),
        )

    def share(self, values: Mapping[str, Any]) -> None:
        """The settings that the cluster of this node keeps, in the place of its own."""
        self._shared = values
        before, after = self.config, overlaid(self._own, values)
        differing = changed(before, after)
        if differing:
            self._take_up(before, after)
            self.config = after
            self._tell_changed("cluster", before, after, differing)

    def _tell_changed(
        self, why: str, before: Config, after: Config, settings: Sequence[Setting]
    ) -> None:
        for setting in settings:
            was, is_now = (setting.shown(getattr(one, setting.name)) for one in (before, after))
            event(
                _log,
                logging.INFO,
                "setting_changed",
                f"{why}: {setting.name} changed from {was} to {is_now}",
                setting=setting.name,
            )

    def _take_up(self, before: Config, after: Config) -> None:
        """All changes, or none."""
        done: list[OnReload] = []
        try:
            for apply in self.on_reload:
                apply(before, after)
                done.append(apply)
        except FlintError:
            for apply in reversed(done):
                with suppress(FlintError):  # the first error is the one that is logged
                    apply(after, before)
            raise


def changed(before: Config, after: Config) -> list[Setting]:
    """The settings that differ."""
    return [s for s in SETTINGS if getattr(before, s.name) != getattr(after, s.name)]
