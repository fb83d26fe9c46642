"""Show settings without their secrets: addresses without passwords, fields without keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def public_address(url: str) -> str:
    """Return an address without the user, the password and the values of its query.

    Examples
    --------
    >>> public_address("https://me:s3cret@host:1234/v1?version=2&key=s3cret")
    'https://host:1234/v1?version=…&key=…'
    """
    address, mark, query = url.partition("?")
    scheme, slashes, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    names = (part.partition("=")[0] for part in query.split("&"))
    hidden = "&".join(f"{name}=…" for name in names)
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}{mark}{hidden if mark else ''}"


_SECRET_WORDS = frozenset(
    ("key", "apikey", "token", "secret", "password", "authorization", "cookie", "auth")
)


def hides(name: str) -> bool:
    """Return whether a header or field is a secret, judged by its name.

    Examples
    --------
    >>> hides("X-Api-Key"), hides("max_tokens")
    (True, False)
    """
    return not _SECRET_WORDS.isdisjoint(name.lower().replace("-", "_").split("_"))


def hide_keys(name: str, value: Any) -> Any:
    """Return a further field of the requests as a trace may hold it.

    Examples
    --------
    >>> hide_keys("gateway", {"api-key": "s3cret", "max_tokens": 5})
    {'api-key': '…', 'max_tokens': 5}
    """
    if isinstance(value, Mapping):
        return {k: hide_keys(str(k), v) for k, v in value.items()}
    return "…" if isinstance(value, str) and hides(name) else value
