"""IAM of Amazon MSK by options alone: driver and executors sign their own tokens."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.broker import EmbeddedBroker, Security
from kohort.broker.net.sasl_mechanisms import MECHANISMS
from tests.client.net.security.test_msk_iam import (
    KEY_ID,
    REGION_NAME,
    SECRET,
    Validator,
    settings_for,
)
from tests.spark.sessions import MARKS, small_session

pytestmark = MARKS
ROWS = 20


def test_driver_and_executors_sign_their_own_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials are in the environment that each process has; no option names them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    mechanisms: Any = MECHANISMS
    monkeypatch.setitem(mechanisms, "OAUTHBEARER", lambda _: Validator())
    security = Security("SASL_SSL", mechanisms=["OAUTHBEARER"])
    executors = {"spark__master": "local-cluster[1,1,1024]", "spark__executor__memory": "512m"}
    with EmbeddedBroker(security=security) as broker, small_session(**executors) as spark:
        broker.create_topic("flights", 2)
        given = settings_for(broker)
        assert given["sasl.aws.region"] == REGION_NAME
        options = {f"kafka.{name}": value for name, value in given.items()}
        rows = spark.range(ROWS).selectExpr("cast(id as string) key", "cast(id as string) value")
        rows.write.format("kohort").options(**options, topic="flights").mode("append").save()
        reading = {**options, "subscribe": "flights", "startingOffsets": "earliest"}
        assert spark.read.format("kohort").options(**reading).load().count() == ROWS
