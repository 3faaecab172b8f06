"""Certificate authorities of the tests' own, and certificates for servers on loopback and for clients."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = dt.timedelta(days=1)
_LEEWAY = dt.timedelta(minutes=5)

FOR_CLIENTS = (ExtendedKeyUsageOID.CLIENT_AUTH,)
FOR_SERVERS = (ExtendedKeyUsageOID.SERVER_AUTH,)


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """Paths of PEM files: a server's certificate, its key, and the authority that a client has to trust."""

    certificate: Path
    key: Path
    authority: Path


def issue(folder: Path, *names: str) -> ServerCertificate:
    """Write a fresh authority, and a certificate of it for these host names and addresses, into the folder."""
    authority_key, authority = _authority()
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    certificate = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]), authority.subject, key)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    issued = ServerCertificate(folder / "server.pem", folder / "server.key", folder / "authority.pem")
    issued.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(issued.key, key)
    issued.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    return issued


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Paths of PEM files, a client's certificate and its key, and the certificate's DER."""

    certificate: Path
    key: Path
    der: bytes

    def context(self, authority: Path) -> ssl.SSLContext:
        """What a client connects with that shows it, to a server that this authority signed."""
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(self.certificate, self.key)
        return context


class ClientAuthority:
    """An authority that signs for clients; `path` is its certificate. What it signs lies in the folder.

    One that is not its own root has been signed by an authority that is gone since.
    """

    def __init__(self, folder: Path, name: str = "clients", *, is_root: bool = True) -> None:
        self._folder = folder
        self._name = name
        self._issued = 0
        self._key, self._certificate = _authority(f"Authority {name}", None if is_root else "Root that is gone")
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        *alternatives: str | x509.GeneralName,
        common_names: Sequence[str] = (),
        begins: dt.timedelta = -_LEEWAY,
        ends: dt.timedelta = _LIFE,
        usages: Sequence[x509.ObjectIdentifier] = FOR_CLIENTS,
    ) -> ClientCertificate:
        """A certificate with these names: texts are host names. `begins` and `ends` count from now."""
        key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common_names])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
        )
        if alternatives:
            names = [x509.DNSName(each) if isinstance(each, str) else each for each in alternatives]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not common_names)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self._issued += 1
        path = self._folder / f"{self._name}-{self._issued}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(path.with_suffix(".key"), key)
        return ClientCertificate(path, path.with_suffix(".key"), certificate.public_bytes(serialization.Encoding.DER))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _authority(
    called: str = "Authority of the tests", signed_by: str | None = None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    root_key = key if signed_by is None else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(
            name, name if signed_by is None else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, signed_by)]), key
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    return key, certificate


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LEEWAY)
        .not_valid_after(now + _LIFE)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
