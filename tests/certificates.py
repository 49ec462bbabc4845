"""Certificates for tests: an authority of our own, and what it signs, as PEM files.

authority = Authority(folder)
store = authority.issue("broker", "CN=broker", hosts=("127.0.0.1", "localhost"))
store.path            # key and certificate in one file, as ssl.keystore.location takes them
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Store:
    path: Path  # The key, then the certificate.
    certificate: Path
    key: Path


class Authority:
    def __init__(self, folder: Path, name: str = "Authority of a test") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.path = folder / f"{name.replace(' ', '-').lower()}.pem"
        self.path.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(
        self, file: str, subject: str | x509.Name, hosts: tuple[str, ...] = (), password: str | None = None
    ) -> Store:
        """A certificate for this subject (RFC 4514), good for the hosts."""
        name = x509.Name.from_rfc4514_string(subject) if isinstance(subject, str) else subject
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, self._name, key.public_key())
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = _pem(builder.add_extension(usage, False).sign(self._key, hashes.SHA256()))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        store = Store(self.folder / f"{file}.pem", self.folder / f"{file}.crt", self.folder / f"{file}.key")
        store.certificate.write_bytes(signed)
        store.key.write_bytes(private)
        store.path.write_bytes(private + signed)
        return store


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + 30 * DAY)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
