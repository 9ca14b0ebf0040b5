"""A stream program in memory: delays per aircraft, with a join, windows and a bad record.

No broker is needed. Halfway through, the tasks are recreated from their changelogs:

    python examples/streams_topology.py
"""

from __future__ import annotations

from kohort.streams import JSON, App

MINUTE = 60_000


def build() -> App:
    app = App("delays", on_error="dead-letter")
    flights = app.topic("flights", key=str, value=JSON)
    aircraft = app.topic("aircraft", key=str, value=JSON).table(name="aircraft")

    delays = flights.map(lambda _, flight: flight["delay"], value=int)
    delays.aggregate(int, lambda total, delay: total + delay, value=int, name="total").to("totals")

    makers = flights.join(aircraft, lambda _, plane: plane["maker"], value=str)
    by_maker = makers.key_by(lambda _, maker: maker, key=str, name="by-maker")
    by_maker.window(60 * MINUTE, grace_ms=MINUTE, emit="final").count(name="flights").to("hourly")
    return app


def main() -> None:
    with build().test(partitions=2) as driver:
        driver.send("aircraft", "N14228", {"maker": "BOEING"})
        driver.send("aircraft", "N24211", {"maker": "BOEING"})
        driver.send("flights", "N14228", {"delay": 11}, timestamp=5 * MINUTE)
        driver.send("flights", "N24211", {"delay": 20}, timestamp=7 * MINUTE)
        driver.send_bytes("flights", b"N14228", b"not JSON", timestamp=8 * MINUTE)

        driver.restart()
        print("after the move:", sorted(driver.table("total").items()))

        driver.send("flights", "N14228", {"delay": 4}, timestamp=62 * MINUTE)
        print("totals:", driver.read("totals"))
        for window, count in driver.read("hourly"):
            print(f"{window.key}: {count} flights from minute {window.start_ms // MINUTE} on")
        for letter in driver.read_records("delays-dead-letters"):
            headers = dict(letter.headers)
            print("dead letter:", letter.value, "because of", headers["__streams.errors.exception"])


if __name__ == "__main__":
    main()
