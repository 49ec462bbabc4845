"""TLS for the lease port, with a key and a certificate that the driver makes for its run.

No authority has signed the certificate. A task recognizes its driver by the fingerprint of the certificate, which comes
with the job, as the token does. Only the driver can finish a handshake with that certificate, because the key never
leaves it.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import socket
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fencepost.client.failures import BadClientSetting
from fencepost.spark.lease.wire import CLOSED

VALID = datetime.timedelta(days=3650)
CLOCKS_MAY_DIFFER = datetime.timedelta(days=1)
READ_BYTES = 1 << 16


class LeaseTls(NamedTuple):
    context: ssl.SSLContext
    fingerprint: str


def make_tls() -> LeaseTls:
    """Raises BadClientSetting if the library that makes certificates is not installed."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ModuleNotFoundError:
        raise BadClientSetting(
            "the lease connection is to be encrypted, which needs cryptography on the driver, and it is not installed"
            "\n\nhint: pip install 'fencepost[tls]' on the driver; executors do not need it. "
            "In a network that you trust, fencepost.lease.tls=false leaves the connection unencrypted"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fencepost lease service")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_MAY_DIFFER)
        .not_valid_after(now + VALID)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # For resumed sessions; a task connects once.
    with tempfile.TemporaryDirectory(prefix="fencepost-lease-") as folder:  # Only its owner can look into it.
        path = Path(folder) / "key.pem"
        path.write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()) + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return LeaseTls(context, _fingerprint(certificate.public_bytes(serialization.Encoding.DER)))


class TlsBytes:
    """The driver's side of one encrypted connection, as bytes: the service reads and writes them itself.

    asyncio's TLS shows a connection only after its handshake, so a stranger could not give way before that, and takes
    256 KiB for each. After each `decrypt` there may be bytes to send.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._has_shaken_hands = self._has_ended = False

    def decrypt(self, data: bytes | bytearray) -> bytearray:
        """Empty during the handshake, and while a record is incomplete. Raises ssl.SSLError."""
        plain = bytearray()
        if self._has_ended:
            return plain
        self._incoming.write(data)
        with suppress(ssl.SSLWantReadError):
            if not self._has_shaken_hands:
                self._tls.do_handshake()
                self._has_shaken_hands = True
            while part := self._tls.read(READ_BYTES):
                plain += part
            self._has_ended = True  # Only the end of the connection may follow.
        return plain

    def encrypt(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self.to_send()

    def to_send(self) -> bytes:
        return self._outgoing.read()


def connect_tls(plain: socket.socket, fingerprint: str) -> ssl.SSLSocket:
    """Raises OSError: ConnectionError if the driver closes the connection, else the peer is not that driver."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The fingerprint takes the place of names and authorities.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        connected = context.wrap_socket(plain)
    except ssl.SSLEOFError:
        raise ConnectionError(CLOSED) from None
    found = _fingerprint(connected.getpeercert(binary_form=True) or b"")
    if not hmac.compare_digest(found, fingerprint):
        connected.close()
        raise OSError(f"its certificate has the fingerprint {found}, expected {fingerprint}")
    return connected


def _fingerprint(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()
