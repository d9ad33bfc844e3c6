"""X.509 certificates: authorities, the leaves they sign, and the names in them.

ECDSA on P-256. A leaf names its principal in a URI, and the roles it may serve as in DNS names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A peer whose clock is slightly behind must accept a new certificate.
_BACKDATED = timedelta(hours=1)

PrivateKey = ec.EllipticCurvePrivateKey
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True)
class Authority:
    """A CA certificate and its key."""

    certificate: x509.Certificate
    key: PrivateKey

    @staticmethod
    def create(name: str, validity: timedelta) -> Authority:
        """A new self-signed authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(name), _name(name), key, validity)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return Authority(builder.sign(key, hashes.SHA256()), key)

    def issue(
        self,
        name: str,
        alternatives: Sequence[x509.GeneralName],
        validity: timedelta,
        uses: Sequence[x509.ObjectIdentifier] = (SERVER, CLIENT),
    ) -> tuple[x509.Certificate, PrivateKey]:
        """A leaf for `uses`, and its new key. A negative validity makes an expired one."""
        key = ec.generate_private_key(ec.SECP256R1())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _builder(_name(name), self.certificate.subject, key, validity)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(signer, critical=False)
        )
        return builder.sign(self.key, hashes.SHA256()), key


def host_name(host: str) -> x509.GeneralName:
    """A host's name or IP address, as an alternative name."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """The certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: PrivateKey) -> bytes:
    """The key in PEM; not encrypted, so only the file's mode protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def same_key(certificate: x509.Certificate, key: object) -> bool:
    """Whether `key` is the certificate's private key."""
    public = getattr(key, "public_key", None)
    return public is not None and _public_der(public()) == _public_der(certificate.public_key())


def uris(certificate: x509.Certificate) -> list[str]:
    """The URIs in the certificate's subject alternative name."""
    return _alternatives(certificate, x509.UniformResourceIdentifier)


def dns_names(certificate: x509.Certificate) -> list[str]:
    """The DNS names in the certificate's subject alternative name."""
    return _alternatives(certificate, x509.DNSName)


def _alternatives(
    certificate: x509.Certificate, kind: type[x509.UniformResourceIdentifier] | type[x509.DNSName]
) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(name) for name in found.value.get_values_for_type(kind)]


def _public_der(key: object) -> bytes:
    der: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return der


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, validity: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + validity) - _BACKDATED)
        .not_valid_after(now + validity)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
