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
from pathlib import Path
from typing import NamedTuple

from fencepost.client.failures import BadClientSetting

VALID = datetime.timedelta(days=3650)
CLOCKS_MAY_DIFFER = datetime.timedelta(days=1)


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
            "fencepost.lease.tls=true needs cryptography on the driver, which is not installed\n\n"
            "hint: pip install 'fencepost[tls]'; executors do not need it"
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
    with tempfile.TemporaryDirectory(prefix="fencepost-lease-") as folder:  # Only its owner can look into it.
        path = Path(folder) / "key.pem"
        path.write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()) + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return LeaseTls(context, _fingerprint(certificate.public_bytes(serialization.Encoding.DER)))


def connect_tls(plain: socket.socket, fingerprint: str) -> ssl.SSLSocket:
    """Raises OSError if the peer is not the driver with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The fingerprint takes the place of names and authorities.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connected = context.wrap_socket(plain)
    found = _fingerprint(connected.getpeercert(binary_form=True) or b"")
    if not hmac.compare_digest(found, fingerprint):
        connected.close()
        raise ConnectionRefusedError(f"its certificate has the fingerprint {found}, expected {fingerprint}")
    return connected


def _fingerprint(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()
