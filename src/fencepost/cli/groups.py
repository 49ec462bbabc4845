"""A group of commands that shows its help when it is called without a command, in every version of click."""

from __future__ import annotations

import click


class HelpfulGroup(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])
