"""The documentation is built as a site, strictly, and its reference has every public name."""

from __future__ import annotations

import re
import zlib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import documentation

PACKAGES = (
    "kohort",
    "kohort.broker",
    "kohort.client",
    "kohort.group",
    "kohort.group.assignors",
    "kohort.group.coordinator",
    "kohort.group.member",
    "kohort.region",
    "kohort.spark",
    "kohort.testing",
)

# A build takes 20 s, and longer beside other tests.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def sphinx() -> str:
    """Sphinx's version; tests that ask for it are left out where the extra `docs` is missing."""
    return version("sphinx")


@pytest.fixture(scope="module")
def site(sphinx: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    built = documentation.build(target)
    assert built.returncode == 0, f"Sphinx {sphinx}:\n{built.stdout}"
    return target


def described(site: Path) -> set[str]:
    """The names that pages may link to, from the inventory that Sphinx writes."""
    _, _, _, _, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    entries = re.findall(r"^(\S+) py:\w+ ", zlib.decompress(packed).decode(), re.MULTILINE)
    return set(entries)


def test_the_site_begins_with_its_first_page(site: Path) -> None:
    """The index forwards to it, and it has a link to the guide of each task."""
    assert 'url=docs/index.html"' in (site / "index.html").read_text()
    page = (site / "docs" / "index.html").read_text()
    assert "Kafka consumer groups for Python and Spark" in page
    links = set(re.findall(r'href="([\w./-]+)\.html', page))
    assert {"clients", "spark", "testing", "security", "rules", "glossary"} <= links


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_described(site: Path, package: str) -> None:
    names = described(site)
    missing = [
        name
        for name in import_module(package).__all__
        if not name.startswith("__") and not any(f"{home}.{name}" in names for home in PACKAGES)
    ]
    assert missing == [], f"name it in docs/site/api: {missing} of {package}"


def test_the_reference_has_settings_and_methods(site: Path) -> None:
    expected = {"kohort.Consumer.poll", "kohort.client.ConsumerSettings.group_id"}
    assert expected <= described(site)
