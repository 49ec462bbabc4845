"""The principal of a client that shows a certificate: the certificate's subject, as Java writes it (RFC 2253).

Follows Kafka's DefaultKafkaPrincipalBuilder without mapping rules, and Java's X500Principal.getName.
"""

from __future__ import annotations

from cryptography import x509

# The attributes that Java writes by name. It writes all others by number, with their encoded value in hexadecimal.
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
ESCAPED = frozenset(',+"\\<>;=')


def principal_of(certificate: bytes) -> str:
    """`User:CN=alice,O=Example` for a certificate in DER."""
    subject = x509.load_der_x509_certificate(certificate).subject
    return "User:" + ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(subject.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    number = attribute.oid.dotted_string
    keyword = KEYWORDS.get(number)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{number}=#{_encoded_value(attribute).hex()}"
    return f"{keyword}={_escape(attribute.value)}"


def _encoded_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """The value in DER, which is the end of Name { RDN { Attribute { type, value } } }."""
    der = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        der = _content(der)
    type_bytes = len(der) - len(_after(der))
    return der[type_bytes:]


def _content(der: bytes) -> bytes:
    return der[2 + (der[1] & 0x7F) :] if der[1] & 0x80 else der[2:]


def _after(der: bytes) -> bytes:
    """What follows the first element, an object identifier, which is short."""
    return der[2 + der[1] :]


def _escape(text: str) -> str:
    """RFC 2253, section 2.4."""
    escaped = "".join(f"\\{c}" if c in ESCAPED else c for c in text)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(text) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped
