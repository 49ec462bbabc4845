"""SaslAuthenticate (key 36), v0-2: the messages of a login. A failed login is answered late and ends the connection."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.auth.login import LoginAccepted, LoginRefused, State
from fencepost.protocol import errors
from fencepost.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(ctx: Context, req: SaslAuthenticateRequest) -> SaslAuthenticateResponse | None:
    login = ctx.connection.login
    if login is None or login.state is not State.AUTHENTICATE:
        return SaslAuthenticateResponse(
            errors.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
        )
    step = login.authenticate(req.auth_bytes, ctx.now_ms)
    if isinstance(step, LoginRefused):
        _refuse_later(ctx, step)
        return None
    if isinstance(step, LoginAccepted):
        ctx.connection.enter(f"User:{step.user}")
    return SaslAuthenticateResponse(errors.NONE, "", step.token, login.session_lifetime_ms(ctx.now_ms))


def _refuse_later(ctx: Context, refused: LoginRefused) -> None:
    """A client that tries passwords has to wait for each answer."""

    def refuse(now_ms: int) -> None:
        ctx.reply(SaslAuthenticateResponse(errors.SASL_AUTHENTICATION_FAILED, refused.message))
        ctx.close_connection(f"its login failed: {refused.detail or refused.message}")

    delay_ms = ctx.cluster.config["connection.failed.authentication.delay.ms"]
    # The time is rounded down to a millisecond. One more, so that the delay is never shorter than the setting.
    timer = ctx.cluster.timers.at(ctx.now_ms + 1 + delay_ms, refuse)
    ctx.connection.on_close(timer.cancel)
