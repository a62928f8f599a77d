"""The one function of the edge that says who a request comes from, by the ways in that are on."""

import functools

from strandline.auth.api_keys import ApiKeys
from strandline.auth.client_certificates import Certificates
from strandline.auth.credentials import Sent, Way
from strandline.auth.principals import Principal
from strandline.config_auth import AuthSettings
from strandline.db.database import Database
from strandline.errors import Forbidden, Misconfigured, Unauthorized


class Authenticator:
    """Verifies credentials. What it looks up it remembers for less than a minute. Shared by
    threads.

    Of several credentials the first of API key, JWT and certificate decides alone: one that does
    not hold is not made good by the next, which may allow more. Where all are required, all decide.
    """

    def __init__(self, database: Database, settings: AuthSettings) -> None:
        ways: list[Way] = []
        self._keys = self._certificates = None
        if settings.key_secret:
            self._keys = ApiKeys(database, settings.key_secret)
            ways.append(self._keys)
        if settings.takes_jwts:
            from strandline.auth.jwt import Jwts  # pays for PyJWT and cryptography

            ways.append(Jwts(database, settings))
        if settings.client_certificates:
            self._certificates = Certificates(database)
            ways.append(self._certificates)
        if not ways:
            raise Misconfigured("No way to authenticate is on.")
        self._ways, self._all = ways, settings.auth_require_all

    @property
    def challenge(self) -> str:
        """WWW-Authenticate of a 401."""
        return ", ".join(dict.fromkeys(way.challenge for way in self._ways))

    def issued_by_us(self, sent: Sent) -> None:
        """Raises Unauthorized unless the request carries a credential that this deployment made, or
        trusts the maker of. Asks no database: for what must answer while there is none."""
        for way, credential in self._deciding(sent):
            way.check(credential)

    def principal(self, sent: Sent, deadline: float | None = None) -> Principal:
        """Who the request comes from. Raises Unauthorized; Forbidden for a tenant that is not, or
        credentials that contradict each other; Unavailable when it cannot be told."""
        deciding = self._deciding(sent)
        if not self._all:
            ((way, credential),) = deciding
            return way.principal(credential, deadline)
        for way, credential in deciding:  # no made-up one has the others looked up
            way.check(credential)
        return functools.reduce(_together, [way.principal(c, deadline) for way, c in deciding])

    def forget_key(self, key_id: str) -> None:
        """Look this key up again before it is next believed: it was just revoked or rotated. Other
        processes do within a minute."""
        if self._keys:
            self._keys.forget(key_id)

    def forget_certificates(self) -> None:
        """As `forget_key`, after a certificate's subject was entered or revoked."""
        if self._certificates:
            self._certificates.forget()

    def _deciding(self, sent: Sent) -> list[tuple[Way, str]]:
        """The credentials that decide, each with its way. Raises Unauthorized where one is
        missing."""
        there: list[tuple[Way, str]] = []
        for way in self._ways:
            credential = way.find(sent)
            if credential is not None:
                if not self._all:
                    return [(way, credential)]
                there.append((way, credential))
        if len(there) < len(self._ways):
            asked = (" and " if self._all else " or ").join(way.asks_for for way in self._ways)
            raise Unauthorized(f"Send {asked}.")
        return there


def _together(one: Principal, other: Principal) -> Principal:
    """Who two credentials of one request stand for: each narrows the other."""
    if one.tenant != other.tenant:
        raise Forbidden("The credentials of this request are of different tenants.")
    if one.user and other.user and one.user != other.user:
        raise Forbidden("The credentials of this request are bound to different users.")
    rights = _whole(one.rights) & _whole(other.rights)
    return Principal(one.tenant, one.user or other.user, rights, one.key_id or other.key_id)


def _whole(rights: frozenset[str]) -> frozenset[str]:
    """An admin reads and writes."""
    return rights | {"read", "write"} if "admin" in rights else rights
