"""A group of commands that shows its help, with exit code 0, if it is called without a command."""

from __future__ import annotations

import click


class HelpfulGroup(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])
