"""The principal of a certificate. The expected texts are those of Java 17's X500Principal.getName."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import NameAttribute as Attribute
from cryptography.x509.oid import NameOID

from fencepost.machines.auth.certificates import principal_of
from tests.certificates import Authority


@pytest.mark.parametrize(
    ("attributes", "principal"),
    [
        (
            [
                Attribute(NameOID.COUNTRY_NAME, "DE"),
                Attribute(NameOID.ORGANIZATION_NAME, "Example"),
                Attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Orders"),
                Attribute(NameOID.COMMON_NAME, "alice"),
            ],
            "CN=alice,OU=Orders,O=Example,C=DE",
        ),
        (
            [Attribute(NameOID.COMMON_NAME, '#a,b+c"d\\e<f>g;h=i '), Attribute(NameOID.ORGANIZATION_NAME, " lead")],
            'O=\\ lead,CN=\\#a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\ ',
        ),
        (
            [
                Attribute(NameOID.COMMON_NAME, "bob"),
                Attribute(NameOID.EMAIL_ADDRESS, "bob@example.com"),
                Attribute(NameOID.SERIAL_NUMBER, "12"),
            ],
            "2.5.4.5=#13023132,1.2.840.113549.1.9.1=#160f626f62406578616d706c652e636f6d,CN=bob",
        ),
        (
            [
                Attribute(NameOID.USER_ID, "u1"),
                Attribute(NameOID.DOMAIN_COMPONENT, "org"),
                Attribute(NameOID.STATE_OR_PROVINCE_NAME, "Ü"),
                Attribute(NameOID.LOCALITY_NAME, "Köln"),
                Attribute(NameOID.STREET_ADDRESS, "s"),
                Attribute(NameOID.COMMON_NAME, "a  b"),
            ],
            "CN=a  b,STREET=s,L=Köln,ST=Ü,DC=org,UID=u1",
        ),
    ],
)
def test_a_principal_is_the_subject_as_java_writes_it(
    attributes: list[Attribute[str]], principal: str, tmp_path: Path
) -> None:
    store = Authority(tmp_path).issue("client", x509.Name(attributes))
    certificate = x509.load_pem_x509_certificate(store.certificate.read_bytes())
    assert principal_of(certificate.public_bytes(Encoding.DER)) == f"User:{principal}"
