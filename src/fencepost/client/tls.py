"""TLS of a connection to a broker: certificates and keys from PEM files, PEM texts, and Java's keystores (PKCS12).

Files are read for each connection, so a new certificate is used as soon as it is there.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.client.failures import BadClientSetting

TLS_SETTINGS = {
    "ssl.ca.location": "a PEM file or folder; the system's certificates if absent",
    "ssl.ca.pem": "the authority's certificates as PEM text",
    "ssl.certificate.location": "a PEM file with the client's certificate",
    "ssl.certificate.pem": "the client's certificate as PEM text",
    "ssl.key.location": "a PEM file with the client's key",
    "ssl.key.pem": "the client's key as PEM text",
    "ssl.key.password": "of the client's key",
    "ssl.keystore.location": "a PKCS12 file with the client's certificate and key",
    "ssl.keystore.password": "of the keystore",
    "ssl.keystore.type": "PKCS12 or PEM",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem, as the Java client writes it",
    "ssl.keystore.key": "ssl.key.pem, as the Java client writes it",
    "ssl.truststore.location": "a PKCS12 file with the authority's certificates",
    "ssl.truststore.password": "of the truststore",
    "ssl.truststore.type": "PKCS12 or PEM",
    "ssl.truststore.certificates": "ssl.ca.pem, as the Java client writes it",
    "ssl.endpoint.identification.algorithm": "https, or none to accept any host name",
}
# Java finds out whether a store of type JKS is one of PKCS12, so the type alone says nothing.
STORE_TYPES = ("PKCS12", "JKS", "PEM")
PEM_BEGIN = "-----BEGIN "
JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS and JCEKS.


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """At most one place for the authorities, and one for the client's certificate. None: not set."""

    ca_location: str | None = None
    ca_pem: str | None = field(default=None, repr=False)
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    certificate_location: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_location: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    checks_host_name: bool = True

    @property
    def has_certificate(self) -> bool:
        return bool(self.certificate_location or self.certificate_pem or self.keystore_location)


# --- settings -----------------------------------------------------------------------------------------------


def parse_tls(values: Mapping[str, str]) -> TlsSettings:
    """Raises BadClientSetting. Reads no file."""
    values = _with_our_names(values)
    only_one(values, "ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location")
    only_one(values, "ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
    only_one(values, "ssl.key.location", "ssl.key.pem", "ssl.keystore.location")
    pem = {name: pem_text(values, name) for name in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem")}
    if pem["ssl.key.pem"] and not pem["ssl.certificate.pem"]:
        raise BadClientSetting("ssl.key.pem is set, but not ssl.certificate.pem\n\nhint: a key needs its certificate")
    return TlsSettings(
        ca_location=values.get("ssl.ca.location"),
        ca_pem=pem["ssl.ca.pem"],
        truststore_location=values.get("ssl.truststore.location"),
        truststore_password=values.get("ssl.truststore.password"),
        certificate_location=values.get("ssl.certificate.location"),
        certificate_pem=pem["ssl.certificate.pem"],
        key_location=values.get("ssl.key.location"),
        key_pem=pem["ssl.key.pem"],
        key_password=values.get("ssl.key.password"),
        keystore_location=values.get("ssl.keystore.location"),
        keystore_password=values.get("ssl.keystore.password"),
        checks_host_name=values.get("ssl.endpoint.identification.algorithm", "https").lower() not in ("", "none"),
    )


def _with_our_names(given: Mapping[str, str]) -> dict[str, str]:
    """The Java client has stores of type PEM: files and texts that have other names in librdkafka."""
    values = {name: value for name, value in given.items() if value}
    for name, same in (
        ("ssl.truststore.certificates", "ssl.ca.pem"),
        ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
        ("ssl.keystore.key", "ssl.key.pem"),
    ):
        if name in values:
            values.setdefault(same, values.pop(name))
    for store, names in (
        ("ssl.truststore", ("ssl.ca.location",)),
        ("ssl.keystore", ("ssl.certificate.location", "ssl.key.location")),
    ):
        kind = values.get(f"{store}.type", "PKCS12").upper()
        if kind not in STORE_TYPES:
            raise BadClientSetting(f"{store}.type={kind} is none of PKCS12, PEM")
        if kind == "PEM" and f"{store}.location" in values:
            location = values.pop(f"{store}.location")
            values |= dict.fromkeys(names, location)
    # Kept: an empty text switches the check of the host name off, as in the Java client.
    return values | {n: v for n, v in given.items() if n == "ssl.endpoint.identification.algorithm"}


def only_one(values: Mapping[str, str], *names: str) -> None:
    given = [name for name in names if name in values]
    if len(given) > 1:
        raise BadClientSetting(f"{' and '.join(given)} are both set\n\nhint: leave one of them out")


def pem_text(values: Mapping[str, str], name: str) -> str | None:
    """The PEM text in a setting; None if it is not set."""
    if not values.get(name):
        return None
    text = values[name].replace("\\n", "\n")  # As it is written where a value has to fit into one line.
    if PEM_BEGIN not in text:
        # The message must not have the value: it may be a key.
        raise BadClientSetting(
            f"{name} is no PEM text: there is no line `{PEM_BEGIN}...`\n\nhint: a file's name goes "
            f"into {name.replace('.pem', '.location')}"
        )
    return text


# --- contexts -----------------------------------------------------------------------------------------------


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises BadClientSetting if a certificate or a key cannot be read."""
    if settings.truststore_location:
        context = trusting(None, _trusted_by(settings.truststore_location, settings.truststore_password), "ssl.ca.")
    else:
        context = trusting(settings.ca_location, settings.ca_pem, "ssl.ca.")
    try:
        if settings.certificate_location:
            context.load_cert_chain(settings.certificate_location, settings.key_location, settings.key_password or "")
        elif settings.certificate_pem:
            _load_pem(context, settings.certificate_pem + "\n" + (settings.key_pem or ""), settings.key_password or "")
        elif settings.keystore_location:
            _load_pem(context, _key_and_chain(settings.keystore_location, settings.keystore_password), "")
    except (OSError, ssl.SSLError) as e:
        raise BadClientSetting(
            f"the client's certificate or key cannot be read: {e}\n\n"
            "hint: check ssl.certificate.*, ssl.key.* and ssl.keystore.*; is ssl.key.password right?"
        ) from None
    if not settings.checks_host_name:
        context.check_hostname = False
    return context


def trusting(location: str | None, pem: str | None, prefix: str) -> ssl.SSLContext:
    """A context that trusts these authorities only; those of the system if there are none."""
    folder = location is not None and os.path.isdir(location)
    try:
        return ssl.create_default_context(
            cafile=None if folder else location, capath=location if folder else None, cadata=pem
        )
    except (OSError, ssl.SSLError) as e:
        name = f"{prefix}location={location}" if location else f"{prefix}pem"
        raise BadClientSetting(
            f"{name}: the certificates cannot be read: {e}\n\nhint: it has to have certificates in PEM"
        ) from None


def _load_pem(context: ssl.SSLContext, pem: str, password: str) -> None:
    """Python's library takes a file and no text."""
    with tempfile.TemporaryDirectory(prefix="fencepost-tls-") as folder:  # Only its owner can look into it.
        path = Path(folder) / "key.pem"
        path.write_text(pem)
        context.load_cert_chain(path, password=password)


# --- Java's keystores ---------------------------------------------------------------------------------------


def _trusted_by(location: str, password: str | None) -> str:
    store = _read_store("ssl.truststore", location, password)
    certificates = [one.certificate for one in (store.cert, *store.additional_certs) if one is not None]
    if not certificates:
        raise BadClientSetting(
            f"ssl.truststore.location={location} has no certificates\n\n"
            "hint: is ssl.truststore.password set? Without it the certificates of most stores cannot be read"
        )
    return "".join(_pem_of(certificate) for certificate in certificates)


def _key_and_chain(location: str, password: str | None) -> str:
    store = _read_store("ssl.keystore", location, password)
    if store.key is None or store.cert is None:
        raise BadClientSetting(
            f"ssl.keystore.location={location} has no private key with its certificate\n\n"
            "hint: `keytool -list -keystore FILE` shows a PrivateKeyEntry where there is one"
        )
    from cryptography.hazmat.primitives import serialization

    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key: bytes = store.key.private_bytes(encoding, form, serialization.NoEncryption())
    chain = (store.cert, *store.additional_certs)
    return "".join(_pem_of(one.certificate) for one in chain) + key.decode()


def _pem_of(certificate: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    return str(certificate.public_bytes(serialization.Encoding.PEM).decode())


def _read_store(name: str, location: str, password: str | None) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ModuleNotFoundError:
        raise BadClientSetting(
            f"{name}.location needs cryptography, which is not installed\n\n"
            "hint: pip install 'fencepost[tls]', or give certificates as PEM"
        ) from None
    try:
        content = Path(location).read_bytes()
    except OSError as e:
        raise BadClientSetting(
            f"{name}.location={location} cannot be read: {e.strerror}\n\nhint: check {name}.location"
        ) from None
    if content.startswith(JKS_MAGIC):
        raise BadClientSetting(
            f"{name}.location={location} is a JKS keystore, expected PKCS12\n\nhint: `keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12` makes one"
        )
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as e:
        raise BadClientSetting(
            f"{name}.location={location} cannot be read: {e}\n\nhint: check {name}.password; the file has to be PKCS12"
        ) from None
