"""The SASL mechanisms that a listener offers, from its settings and the cluster's users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fencepost.broker.config import BadSetting, Config
from fencepost.broker.metadata import Metadata
from fencepost.broker.users import Users
from fencepost.machines.auth.login import Exchange, Login
from fencepost.machines.auth.plain import PlainExchange, parse_jaas_users
from fencepost.machines.auth.scram import Appearance, ScramCredential, ScramExchange, decoy_of, look_of
from fencepost.protocol.scram import SCRAM_MECHANISMS as SCRAM
from fencepost.protocol.scram import ScramMechanism

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"


class Logins:
    """Makes the `Login` of each connection of one listener. `nonce` is random."""

    def __init__(
        self,
        config: Config,
        listener: str,
        metadata: Callable[[], Metadata],
        nonce: Callable[[], str],
        find_key: Callable[[str | None], list[Any]] | None = None,
    ) -> None:
        """Raises BadSetting if a mechanism is enabled that no client could use. `find_key` finds keys of tokens."""
        self._metadata = metadata
        self._looks: dict[str, Counter[Appearance]] = {}
        self._users: Users = {}  # Those that `_looks` is of.
        enabled = enabled_mechanisms(config, listener)
        self._mechanisms: dict[str, Callable[[], Exchange]] = {}
        for name in enabled:
            if name in SCRAM:
                self._mechanisms[name] = partial(self._scram, SCRAM[name], nonce)
            elif name == PLAIN:
                self._mechanisms[name] = partial(PlainExchange, plain_users(config, listener))
            elif name == OAUTHBEARER:
                assert find_key is not None
                self._mechanisms[name] = token_exchanges(config, listener, find_key)
        self._max_session_ms = {
            name: int(config.for_listener(listener, "connections.max.reauth.ms", name)) for name in enabled
        }

    def new(self) -> Login:
        return Login(self._mechanisms, self._max_session_ms)

    def _scram(self, mechanism: ScramMechanism, nonce: Callable[[], str]) -> ScramExchange:
        return ScramExchange(mechanism, partial(self._credential, mechanism), nonce())

    def _credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        metadata = self._metadata()
        if metadata.users is not self._users:
            self._users, self._looks = metadata.users, looks_of(metadata.users)
        # Made for everyone: its time would tell who exists.
        decoy = decoy_of(mechanism, user, metadata.login_secret, self._looks.get(mechanism.name, {}))
        return metadata.users.get(user, {}).get(mechanism.name, decoy)


def looks_of(users: Users) -> dict[str, Counter[Appearance]]:
    """How many credentials of each mechanism have which look."""
    found: dict[str, Counter[Appearance]] = {}
    for credentials in users.values():
        for mechanism, credential in credentials.items():
            found.setdefault(mechanism, Counter())[look_of(credential)] += 1
    return found


def enabled_mechanisms(config: Config, listener: str) -> list[str]:
    found: str = config.for_listener(listener, "sasl.enabled.mechanisms")
    return found.split(",")


def token_exchanges(
    config: Config, listener: str, find_key: Callable[[str | None], list[Any]]
) -> Callable[[], Exchange]:
    # Imported here: few brokers have the packages of the extra `security`.
    from fencepost.machines.auth.oauthbearer import CheckedToken, OAuthBearerExchange, TokenRules, check_token

    own = partial(config.for_listener, listener, mechanism=OAUTHBEARER)
    audiences = (word.strip() for word in str(own("sasl.oauthbearer.expected.audience")).split(","))
    rules = TokenRules(
        own("sasl.oauthbearer.expected.issuer"),
        tuple(filter(None, audiences)),
        own("sasl.oauthbearer.clock.skew.seconds"),
        own("sasl.oauthbearer.sub.claim.name"),
    )

    def check(text: str, now_ms: int) -> CheckedToken:
        return check_token(text, find_key, rules, now_ms)

    return partial(OAuthBearerExchange, check)


def plain_users(config: Config, listener: str) -> Mapping[str, str]:
    """Names and passwords for PLAIN. Raises BadSetting if there are none."""
    found = parse_jaas_users(config.for_listener(listener, "sasl.jaas.config", PLAIN))
    if not found:
        setting = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
        raise BadSetting(
            f"sasl.enabled.mechanisms has PLAIN, but {setting} names no user\n\n"
            f"hint: {setting}=org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_alice="PASSWORD";'
        )
    return found
