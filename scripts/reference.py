"""Write the reference pages from the code: settings, APIs, and what differs from Apache Kafka.

Run it after changing any of them; a test fails while a page is out of date.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from fencepost.broker.api import APIS
from fencepost.broker.config import INERT_TOPIC_SETTINGS, SETTINGS, TOPIC_SETTINGS

ROOT = Path(__file__).resolve().parent.parent
_DIFFERS = re.compile(r"^( *)# Differs: (.*)\n((?:\1# .*\n)*)", re.MULTILINE)


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Given with `--set name=value` or in a properties file with `--config FILE`. Names and defaults are Apache",
        "Kafka's; our own begin with `fencepost.`. Replication is always 1.",
        "",
        "| setting | values | default | |",
        "|---|---|---|---|",
    ]
    for name, setting in sorted(SETTINGS.items()):
        values = setting.kind.replace("|", " or ")
        default = str(setting.default).lower() if isinstance(setting.default, bool) else setting.default
        lines.append(f"| `{name}` | {values} | {default if default != '' else '(none)'} | {setting.doc} |")
    lines += ["", "## Topics", "", "A topic's own setting wins over the broker's.", ""]
    lines += ["| topic setting | falls back to |", "|---|---|"]
    lines += [f"| `{name}` | `{fallback}` |" for name, fallback in sorted(TOPIC_SETTINGS.items())]
    inert = ", ".join(f"`{name}`" for name in sorted(INERT_TOPIC_SETTINGS))
    lines += ["", f"Accepted and shown, without effect: {inert}.", ""]
    return "\n".join(lines)


def apis_page() -> str:
    lines = [
        "# APIs",
        "",
        "What the broker serves; the names are Kafka's. Each has one file, `src/fencepost/broker/api/kNN_name.py`.",
        "",
        "| key | API | versions | |",
        "|---|---|---|---|",
    ]
    for api in APIS.values():
        doc = (import_module(api.module).__doc__ or "").split("\n")[0]
        about = doc.split(": ", 1)[1] if ": " in doc else doc
        lines.append(f"| {api.key} | {api.name} | {api.first}-{api.last} | {about} |")
    return "\n".join([*lines, ""])


def deviations() -> list[tuple[str, str]]:
    """Every `# Differs:` comment of the source: where, and what it says."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for match in _DIFFERS.finditer(path.read_text()):
            more = [line.strip().removeprefix("# ") for line in match[3].splitlines()]
            found.append((str(path.relative_to(ROOT)), " ".join([match[2], *more])))
    return found


def deviations_page() -> str:
    page = (ROOT / "docs/deviations.intro.md").read_text().rstrip()
    lines = [page, "", "## In the code", "", "Each of these is marked `# Differs:` where it happens.", ""]
    lines += ["| where | what, and why |", "|---|---|"]
    lines += [f"| `{where}` | {text} |" for where, text in deviations()]
    return "\n".join([*lines, ""])


PAGES = {
    "docs/reference/settings.md": settings_page,
    "docs/reference/apis.md": apis_page,
    "docs/deviations.md": deviations_page,
}


def main() -> None:
    for path, render in PAGES.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(render())
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
