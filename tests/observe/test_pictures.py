"""Pictures and reports are well-formed and show what they were given, whatever it is called."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from kohort.observe.rebalances import Move, RebalanceLog, describe_moves
from kohort.observe.report import Section, render
from kohort.observe.svg import Marker, draw
from kohort.observe.timeline import OwnershipTimeline
from kohort.types import TopicPartition

names = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=12)
SVG = "{http://www.w3.org/2000/svg}"


@given(names, names, st.integers(1, 10_000_000))
def test_svg_is_xml_with_a_bar_for_each_span(topic: str, owner: str, until: int) -> None:
    partition = TopicPartition(topic, 0)
    timeline = OwnershipTimeline([partition], 0)
    timeline.own(partition, owner, until // 2)
    root = ElementTree.fromstring(draw(timeline, until, [owner], [Marker(until, owner)]))
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert len(titles) == len(timeline.spans(partition, until))
    assert titles[-1].startswith(f"{owner}: ")


def test_what_is_learned_is_a_hatched_bar_in_the_learner_s_colour() -> None:
    place = TopicPartition("t", 3)
    owners, learners = OwnershipTimeline([place], 0), OwnershipTimeline([place], 0)
    owners.own(place, "north", 10)
    learners.own(place, "south", 20)
    learners.own(place, None, 60)
    root = ElementTree.fromstring(
        draw(owners, 100, ["north", "south"], learners=learners, rows="task ")
    )
    bars = {(bar.findtext(f"{SVG}title") or "", bar.get("fill")) for bar in root.iter(f"{SVG}rect")}
    pattern = root.find(f".//{SVG}pattern[@id='learns-E69F00']")
    assert ("south learns: 0.0 s", "url(#learns-E69F00)") in bars
    assert pattern is not None
    assert "task 3" in {each.text for each in root.iter(f"{SVG}text")}


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.inside = tag == "td"
        if self.inside:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


@given(st.lists(names, min_size=1, max_size=4))
def test_report_shows_every_cell_as_it_was_given(cells: list[str]) -> None:
    page = render("t", "s", "v", True, [Section("h", columns=["#c"] * len(cells), rows=[cells])])
    reader = _Cells()
    reader.feed(page)
    assert reader.cells == cells


def test_a_rebalance_knows_its_moves_and_its_longest_gap() -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    timeline = OwnershipTimeline([one, two], 0)
    timeline.own(one, "north", 10)
    timeline.own(two, "north", 10)
    log = RebalanceLog(timeline)
    log.begin(10, "north", "joined")
    log.end(10, 1)
    log.begin(100, "south", "joined")
    timeline.release_all("north", 120)
    timeline.own(one, "north", 150)
    timeline.own(two, "south", 180)
    done = log.end(180, 2)
    assert done is not None
    assert done.moves == (Move(two, "north", "south"),)
    assert done.longest_gap_ms == 60
    assert describe_moves(done.moves) == "1: north → south"
    assert log.end(200, 3) is None
