"""A certificate authority for the sender's tests, which also issues what must not be accepted."""

import datetime as dt
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """A key and a certificate of it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def context(self, *chain: "Identity", protocols: tuple[str, ...] = ("http/1.1",)) -> ssl.SSLContext:
        """A server's context that shows the certificate, and these after it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(list(protocols))
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            for each in (self, *chain):
                file.write(each.certificate.public_bytes(serialization.Encoding.PEM))
            file.write(
                self.key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
            )
            file.flush()
            context.load_cert_chain(file.name)
        return context


class Authority:
    """An authority; `bundle` writes the file that a client trusts it by."""

    def __init__(self, issuer: "Authority | None" = None) -> None:
        self.identity = self._sign("Authority of the tests", issuer, authority=True)

    def bundle(self, folder: Path) -> Path:
        path = folder / "authorities.pem"
        path.write_bytes(self.identity.certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def issue(self, *names: str, expired: bool = False) -> Identity:
        return self._sign(names[0], self, names=names, expired=expired)

    def sign_itself(self, name: str) -> Identity:
        """A certificate of that name that nobody vouches for but its own key."""
        return self._sign(name, None, names=(name,))

    def _sign(
        self,
        title: str,
        issuer: "Authority | None",
        *,
        names: tuple[str, ...] = (),
        authority: bool = False,
        expired: bool = False,
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{title} {id(key)}")])
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.identity.certificate.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * _DAY)
            .not_valid_after(now - _DAY if expired else now + _DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False
            )
        return Identity(key, builder.sign(issuer.identity.key if issuer else key, hashes.SHA256()))
