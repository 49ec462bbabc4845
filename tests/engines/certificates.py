"""Certificates for tests: an authority, and keys that it vouches for."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

VALID = datetime.timedelta(days=3650)
CLOCKS_MAY_DIFFER = datetime.timedelta(days=1)


class Certified(NamedTuple):
    """A private key with its certificate and that of its authority."""

    key: Any
    certificate: Any
    authority: Any

    def key_pem(self, password: str | None = None) -> str:
        from cryptography.hazmat.primitives import serialization as s

        encryption = s.BestAvailableEncryption(password.encode()) if password else s.NoEncryption()
        return str(self.key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, encryption).decode())

    def certificate_pem(self) -> str:
        return pem_of(self.certificate)

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "server.pem"
            path.write_text(self.certificate_pem() + self.key_pem())
            context.load_cert_chain(path)
        return context

    def write_pkcs12(self, path: Path, password: str) -> None:
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

        encryption = BestAvailableEncryption(password.encode())
        chain = [self.authority]
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"key", self.key, self.certificate, chain, encryption))


class Authority:
    """Signs certificates. Only the clients and brokers of a test trust it."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign("Authority of a test", self._key.public_key(), is_authority=True)

    @property
    def pem(self) -> str:
        return pem_of(self.certificate)

    def certify(self, name: str, address: str | None = None) -> Certified:
        """address: the IP address of a server."""
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        return Certified(key, self._sign(name, key.public_key(), address=address), self.certificate)

    def write_truststore(self, path: Path, password: str) -> None:
        """PKCS12, with the attribute by which Java trusts a certificate."""
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

        trusted = [pkcs12.PKCS12Certificate(self.certificate, b"authority")]
        path.write_bytes(pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(password.encode())))

    def _sign(self, name: str, public_key: Any, *, address: str | None = None, is_authority: bool = False) -> Any:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        def named(common_name: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("Authority of a test"))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCKS_MAY_DIFFER)
            .not_valid_after(now + VALID)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if address is not None:
            names = [x509.IPAddress(ipaddress.ip_address(address))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def pem_of(certificate: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    return str(certificate.public_bytes(serialization.Encoding.PEM).decode())
