"""Make `.venv` from the lock file. Needs Python 3.11+ with venv, and nothing else.

python -m scripts.setup_python env                the project with its tests and tools
python -m scripts.setup_python engines            the same, plus PySpark
python -m scripts.setup_python s3                 the same, plus a store that speaks S3, for `make test-engines`
python -m scripts.setup_python pyspark VERSION    another PySpark in `.tools/pyspark-VERSION`, for `make test-engines`
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from scripts.quietly import ROOT, TOOLS, StepFailed, say, step

# uv itself is pinned here; everything that it installs is pinned in uv.lock.
UV_VERSION = "0.13.7"
ENVIRONMENT = ROOT / ".venv"
COMPILED = ("click", "confluent_kafka", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "re2", "rich", "uvloop")
GROUPS = {"env": ["dev"], "engines": ["dev", "engines"], "s3": ["dev", "engines", "s3"]}


def runs(python: Path) -> bool:
    """Whether an environment works: a moved or upgraded interpreter leaves a broken link behind."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def uv() -> Path:
    home = TOOLS / "uv"
    binary = home / "bin" / "uv"
    if (home / UV_VERSION).exists() and runs(home / "bin" / "python"):
        return binary
    venv.create(home, with_pip=True, clear=True)
    step("installing uv", [home / "bin" / "python", "-m", "pip", "install", "--quiet", f"uv=={UV_VERSION}"])
    (home / UV_VERSION).touch()
    return binary


def sync(groups: list[str]) -> None:
    if not runs(ENVIRONMENT / "bin" / "python"):
        venv.create(ENVIRONMENT, with_pip=False, clear=True)
    # `--inexact`: a step that needs fewer groups must not uninstall PySpark.
    command: list[str | Path] = [uv(), "sync", "--frozen", "--inexact", "--no-default-groups"]
    for group in groups:
        command += ["--group", group]
    what = "installing PySpark (400 MB, once)" if groups == GROUPS["engines"] else "installing the Python packages"
    python = str(ENVIRONMENT / "bin" / "python")
    step(what, command, env={"UV_PYTHON": python, "UV_PYTHON_DOWNLOADS": "never"})
    # Where Python may not write bytecode while it runs, the broker and each of Spark's workers would compile all their
    # modules at every start.
    used = [path for name in COMPILED for path in ENVIRONMENT.glob(f"lib/python*/site-packages/{name}")]
    subprocess.run([python, "-m", "compileall", "-q", "-x", "/tests?/", ROOT / "src", *used], check=False)


def make_other(version: str) -> None:
    """Make an environment with another PySpark than the one in the lock file; all other versions are the lock's."""
    home = TOOLS / f"pyspark-{version}"
    python = home / "bin" / "python"
    stamp = home / "complete"
    if stamp.exists() and runs(python):
        return
    venv.create(home, with_pip=False, clear=True)
    exported = subprocess.run(
        [uv(), "export", "--frozen", "--no-hashes", "--no-emit-project", "--no-default-groups", "--extra", "spark"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    # PySpark names the one py4j that it works with.
    pinned = [line for line in exported.stdout.splitlines() if not line.startswith(("pyspark==", "py4j=="))]
    requirements = home / "requirements.txt"
    requirements.write_text("\n".join([*pinned, f"pyspark=={version}", ""]))
    install: list[str | Path] = [uv(), "pip", "install", "--python", python, "--requirement", requirements]
    step(f"installing PySpark {version} (400 MB, once)", install)
    used = [path for name in COMPILED for path in home.glob(f"lib/python*/site-packages/{name}")]
    subprocess.run([python, "-m", "compileall", "-q", "-x", "/tests?/", *used], check=False)
    stamp.touch()


def main() -> int:
    if sys.argv[1] == "pyspark":
        try:
            make_other(sys.argv[2])
        except (StepFailed, OSError, subprocess.CalledProcessError) as failure:
            say(f"note: no PySpark {sys.argv[2]}: the tests on that version are skipped; {failure}")
        return 0
    try:
        sync(GROUPS[sys.argv[1]])
    except (StepFailed, OSError, subprocess.CalledProcessError) as failure:
        if sys.argv[1] == "s3":
            say(f"note: no store that speaks S3: the tests with a checkpoint on S3 are skipped; {failure}")
            return 0
        say(f"error: {failure}")
        say("hint: the lines above come from pip or uv; set-up needs to reach the Python package index")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
