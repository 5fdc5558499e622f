"""Keeps keys and certificates up to date: their files are read again when they change, and bad ones are not used.

secrets = SecretFiles(settings, authenticator)
secrets.tls                                       # for the server, None without --tls-cert
secrets.reload_if_changed()                       # ["client keys reloaded"]
"""

import ssl
from pathlib import Path

from stakes.errors import BadInput
from stakes.gateway.proxy.clients import Authenticator, exposed, read_keys
from stakes.gateway.reload import file_stamp
from stakes.gateway.settings import Settings


class SecretFiles:
    """The key files and the certificate of one gateway."""

    def __init__(self, settings: Settings, authenticator: Authenticator) -> None:
        self._settings, self._authenticator = settings, authenticator
        self._keys = [path for path in (settings.key_file, settings.upstream_key_file) if path is not None]
        self._certificate = [path for path in (settings.tls_cert, settings.tls_key) if path is not None]
        self._stamps = {path: file_stamp(path) for path in self.files}
        self.tls = self._newest = self._read_certificate() if self._certificate else None
        if self.tls is not None:
            self.tls.sni_callback = self._use_newest  # called for every connection, with a name or without

    @property
    def files(self) -> list[Path]:
        """All files that are watched."""
        return [*self._keys, *self._certificate]

    def warnings(self) -> list[str]:
        """Which secrets every user of this machine can read."""
        secret = [*self._keys, *self._certificate[1:]]
        return [warning for path in secret if (warning := exposed(path)) is not None]

    def reload_if_changed(self, force: bool = False) -> list[str]:
        """Read again what changed; what happened, in sentences; ``BadInput`` leaves what was in force."""
        stamps = {path: file_stamp(path) for path in self.files}
        changed = {path for path, stamp in stamps.items() if force or stamp != self._stamps[path]}
        self._stamps = stamps
        done = []
        if changed & set(self._keys):
            self._load_keys()
            done.append("keys reloaded")
        if changed & set(self._certificate):
            self._newest = self._read_certificate()
            done.append("certificate reloaded")
        return done

    def _load_keys(self) -> None:
        settings = self._settings
        clients = settings.client_keys if settings.key_file is None else read_keys(settings.key_file)
        upstream = settings.upstream_key
        if settings.upstream_key_file is not None:
            upstream = read_keys(settings.upstream_key_file)[0]
        self._authenticator.replace(clients, upstream)

    def _read_certificate(self) -> ssl.SSLContext:
        """In a context of its own: one that is in use has a certificate without its key while it loads another."""
        certificate, key = self._certificate
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            made.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "not PEM"
            raise BadInput(f"no certificate can be read from {certificate} with the key {key} ({reason})") from None
        return made

    def _use_newest(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        """Connections from now on use the certificate that was read last; open ones keep theirs."""
        if self._newest is not None:
            connection.context = self._newest
