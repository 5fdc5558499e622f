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
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if self._certificate else None
        self._load_certificate()

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
            self._load_certificate()
            done.append("certificate reloaded")
        return done

    def _load_keys(self) -> None:
        settings = self._settings
        clients = settings.client_keys if settings.key_file is None else read_keys(settings.key_file)
        upstream = settings.upstream_key
        if settings.upstream_key_file is not None:
            upstream = read_keys(settings.upstream_key_file)[0]
        self._authenticator.replace(clients, upstream)

    def _load_certificate(self) -> None:
        """Use it for connections from now on; open ones keep theirs."""
        if self.tls is None:
            return
        certificate, key = self._certificate
        try:
            # Tried apart first: a failed attempt leaves a context with a certificate and another one's key.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            self.tls.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "not PEM"
            raise BadInput(f"no certificate can be read from {certificate} with the key {key} ({reason})") from None
