"""Certificates for tests: an authority of our own, and what it signs.

authority = Authority(folder)
store = authority.issue("broker", "CN=broker", hosts=("127.0.0.1", "localhost"))
store.path            # key and certificate in one file, as ssl.keystore.location takes them

certified = authority.certify("CN=client")
certified.key_pem()   # as ssl.key.pem takes it
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCKS_MAY_DIFFER = datetime.timedelta(days=1)
VALID = datetime.timedelta(days=3650)
AUTHORITY_FILE = "authority.pem"


@dataclass(frozen=True)
class Store:
    path: Path  # The key, then the certificate.
    certificate: Path
    key: Path


class Certified(NamedTuple):
    """A private key with its certificate and that of its authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password is not None else NoEncryption()
        encoding, layout = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, layout, encryption).decode()

    def certificate_pem(self) -> str:
        return _pem(self.certificate)

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "server.pem"
            path.write_text(self.certificate_pem() + self.key_pem())
            context.load_cert_chain(path)
        return context

    def write_pkcs12(self, path: Path, password: str) -> None:
        encryption = BestAvailableEncryption(password.encode())
        chain = [self.authority]
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"key", self.key, self.certificate, chain, encryption))


class Authority:
    """Signs certificates. Only the clients and brokers of a test trust it."""

    def __init__(self, folder: Path, name: str = "Authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        unsigned = self._unsigned(self._name, self._key, is_authority=True)
        self.certificate = unsigned.sign(self._key, hashes.SHA256())
        self.path = folder / f"{name.lower()}.pem"
        self.path.write_text(self.pem)

    @property
    def pem(self) -> str:
        return _pem(self.certificate)

    def certify(self, subject: str | x509.Name, hosts: tuple[str, ...] = ()) -> Certified:
        """A certificate for this subject (RFC 4514), good for the hosts."""
        name = x509.Name.from_rfc4514_string(subject) if isinstance(subject, str) else subject
        key = ec.generate_private_key(ec.SECP256R1())
        unsigned = self._unsigned(name, key)
        if hosts:
            unsigned = unsigned.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = unsigned.add_extension(usage, False).sign(self._key, hashes.SHA256())
        return Certified(key, signed, self.certificate)

    def issue(
        self, file: str, subject: str | x509.Name, hosts: tuple[str, ...] = (), password: str | None = None
    ) -> Store:
        """As `certify`, as files in the folder of the authority."""
        certified = self.certify(subject, hosts)
        store = Store(self.folder / f"{file}.pem", self.folder / f"{file}.crt", self.folder / f"{file}.key")
        key_pem = certified.key_pem(password)
        store.certificate.write_text(certified.certificate_pem())
        store.key.write_text(key_pem)
        store.path.write_text(key_pem + certified.certificate_pem())
        return store

    def write_truststore(self, path: Path, password: str) -> None:
        """PKCS12, with the attribute by which Java trusts a certificate."""
        trusted = [pkcs12.PKCS12Certificate(self.certificate, b"authority")]
        path.write_bytes(pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(password.encode())))

    def _unsigned(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCKS_MAY_DIFFER)
            .not_valid_after(now + VALID)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
