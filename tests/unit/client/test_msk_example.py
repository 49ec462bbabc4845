"""The function in the guide that makes tokens for Amazon MSK: what its token says. No test asks Amazon."""

from __future__ import annotations

import base64
import re
import time
import urllib.parse
from pathlib import Path

import pytest

from fencepost.client.oauthbearer import token_source
from fencepost.client.settings import parse_settings

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "connecting.md"


def test_the_function_of_the_guide_makes_a_signed_token_for_msk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    [example] = re.findall(r"^```py\n# msk_login\.py\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "msk_login.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret of a test")
    settings = parse_settings(
        {
            "bootstrap.servers": "h:9098",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": "msk_login:token",
            "sasl.oauthbearer.config": "eu-west-1",
        }
    )
    assert settings.oauth is not None
    token = token_source(settings.oauth).token()
    assert 800 < token.expires_at_s - time.time() <= 900
    url = base64.urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode()
    address = urllib.parse.urlsplit(url)
    query = dict(urllib.parse.parse_qsl(address.query))
    assert (address.scheme, address.netloc) == ("https", "kafka.eu-west-1.amazonaws.com")
    assert query["Action"] == "kafka-cluster:Connect"
    assert re.fullmatch(r"AKIAOFATEST/\d{8}/eu-west-1/kafka-cluster/aws4_request", query["X-Amz-Credential"])
    assert re.fullmatch(r"[0-9a-f]{64}", query["X-Amz-Signature"])
    assert query["X-Amz-Expires"] == "900"
