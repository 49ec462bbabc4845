"""A store that speaks S3, on loopback, with one bucket; and the settings of Spark that reach it through Hadoop's S3A.

    with s3_store() as store:
        builder.config(map=store.spark_settings)
        query = writer.option("checkpointLocation", f"{store.root}/checkpoint").start()

`make test-engines` fetches the store and the jars. Without them the test is skipped, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scripts.setup_jars import S3A, home_of

BUCKET, REGION = "checkpoints", "us-east-1"
KEY, SECRET = "key-of-a-test", "secret-of-a-test"


class S3Store:
    def __init__(self, endpoint: str) -> None:
        import boto3

        self.root = f"s3a://{BUCKET}"
        login = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
        self._client: Any = boto3.client("s3", endpoint_url=endpoint, **login)
        self._client.create_bucket(Bucket=BUCKET)
        settings = {
            "endpoint": endpoint,
            "endpoint.region": REGION,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": KEY,
            "secret.key": SECRET,
        }
        self.spark_settings = {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}
        self.spark_settings["spark.jars"] = ",".join(map(str, sorted(home_of(S3A).glob("*.jar"))))

    def read_all(self, folder: str) -> dict[str, bytes]:
        """The objects of a folder by their names in it."""
        found = self._client.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/").get("Contents", [])
        keys = [entry["Key"] for entry in found]
        return {
            key.removeprefix(f"{folder}/"): self._client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            for key in keys
        }

    def replace_all(self, folder: str, objects: dict[str, bytes]) -> None:
        """Put these in place of all that are there."""
        for name in self.read_all(folder):
            self._client.delete_object(Bucket=BUCKET, Key=f"{folder}/{name}")
        for name, content in objects.items():
            self._client.put_object(Bucket=BUCKET, Key=f"{folder}/{name}", Body=content)


@contextmanager
def s3_store() -> Iterator[S3Store]:
    moto = pytest.importorskip("moto.server", reason="no store that speaks S3; `make test-engines` installs it")
    if not home_of(S3A).is_dir():
        pytest.skip("no jars of Hadoop's S3A; `make test-engines` fetches them")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # A line for each request.
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Store(f"http://{host}:{port}")
    finally:
        server.stop()
