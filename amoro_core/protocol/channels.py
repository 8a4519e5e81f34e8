"""Channels to a coordinator, plain or encrypted, and the errors of making them."""

import re
from pathlib import Path
from typing import Any

import grpc

from amoro_core.errors import CoordinatorUnavailable, InvalidArgument, Untrusted
from amoro_core.model.principals import PLAIN, SECURE, Trust
from amoro_core.model.text_sanitizing import briefly

#: Metadata with the name of the calling user, in UTF-8: for display, not a credential.
USER_KEY = "amoro-user-bin"
#: Metadata by which `amoro mcp` marks calls of an assistant: for the audit, not a credential.
WAY_KEY, MCP_WAY = "amoro-way", "mcp"


def is_encrypted(address: str, trust: Trust) -> bool:
    """Whether TLS files, or `grpcs://` before the address, require encryption."""
    return address.startswith(SECURE) or trust != PLAIN


def open_channel(address: str, trust: Trust, options: list[tuple[str, Any]]) -> grpc.Channel:
    """A channel to the address, encrypted if required.

    Raises InvalidArgument naming the unusable file.
    """
    if not is_encrypted(address, trust):
        return grpc.insecure_channel(address, options=options)
    if (trust.certificate_file is None) != (trust.key_file is None):
        raise InvalidArgument(
            "a client's certificate and its key belong together", hint="Give --certificate-file and --key-file."
        )
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_pem(trust.ca_file, "CERTIFICATE"),
        private_key=_pem(trust.key_file, "PRIVATE KEY"),
        certificate_chain=_pem(trust.certificate_file, "CERTIFICATE"),
    )
    return grpc.secure_channel(address.removeprefix(SECURE), credentials, options=options)


def connection_error(address: str, details: str, *, encrypted: bool) -> Untrusted | CoordinatorUnavailable | None:
    """The error for a call that reached no coordinator, if gRPC's details show that encryption is the reason."""
    where = address.removeprefix(SECURE)
    for words, reason, hint in _DISTRUST:
        if words in details:
            return Untrusted(f"the coordinator at {where} is not trusted: {reason}", hint=hint)
    for words, applies, hint in _MISUNDERSTOOD:
        if words in details and applies is encrypted:
            return CoordinatorUnavailable(
                f"the coordinator at {where} does not answer: {short_details(details)}", hint=hint
            )
    return None


#: gRPC's prefix of the reason of a failed connection: the address and its state.
_AROUND = re.compile(r"^failed to connect to all addresses; last error: \w+: (?:(?:ipv[46]|unix):\S+: )?")


def short_details(details: str) -> str:
    """gRPC's details of a failed connection in one line, without what is known already."""
    return briefly(_AROUND.sub("", details))


#: gRPC's details, their meaning, and the remedy.
_DISTRUST = (
    (
        "certificate has expired",
        "its certificate has expired",
        "Renew it; the coordinator takes the new one by itself.",
    ),
    ("certificate is not yet valid", "its certificate is not valid yet", "Compare the clocks of both machines."),
    (
        "Hostname Verification Check failed",
        "its certificate has another name",
        "Use the name in its certificate, or have this name added to the certificate.",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "no known authority has signed its certificate",
        "Give the certificate of its authority with --ca-file or AMORO_CA_FILE.",
    ),
    (
        "Failed to create security handshaker",
        "the certificates or the key that were given can't be used",
        "Check --ca-file, --certificate-file and --key-file: the key must be the certificate's, all in PEM.",
    ),
)
#: gRPC's details, whether the channel is encrypted, and the remedy.
_MISUNDERSTOOD = (
    ("WRONG_VERSION_NUMBER", True, "It does not encrypt: leave out --ca-file and grpcs://."),
    (
        "Socket closed",
        True,
        "It may ask for a client's certificate, of an authority that it knows: --certificate-file and --key-file.",
    ),
    ("Socket closed", False, "It may expect TLS: give the certificate of its authority with --ca-file."),
)


def _pem(path: Path | None, kind: str) -> bytes | None:
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{path} can't be read: {error.strerror}") from error
    if f"{kind}-----".encode() not in content:
        raise InvalidArgument(f"{path} holds no {kind.lower()} in PEM")
    return content
