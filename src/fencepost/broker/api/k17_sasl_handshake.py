"""SaslHandshake (key 17), v1: the client names the SASL mechanism of its login, or of a repeated login (KIP-368).

Differs from Kafka in that v0, which is followed by tokens without a header, is not served: only clients older than
Kafka 1.0 use it.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.auth.login import State
from fencepost.protocol import errors
from fencepost.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse


def handle(ctx: Context, req: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
    login = ctx.connection.login
    if login is None or not login.may_begin(ctx.now_ms):
        ctx.reply(SaslHandshakeResponse(error_code=errors.ILLEGAL_SASL_STATE))
        if login is not None and login.state is State.AUTHENTICATE:
            ctx.close_connection("it named a second SASL mechanism in the middle of its login")
        return None
    offered = list(login.mechanisms)
    if login.begin(req.mechanism, ctx.now_ms):
        return SaslHandshakeResponse(mechanisms=offered)
    ctx.reply(SaslHandshakeResponse(errors.UNSUPPORTED_SASL_MECHANISM, offered))
    ctx.close_connection(f"it asked for the SASL mechanism {req.mechanism}, offered are {', '.join(offered)}")
    return None
