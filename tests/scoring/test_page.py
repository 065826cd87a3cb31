"""The page, opened, sorted and filtered in headless Chromium.

Without an installed Chromium or Chrome those tests are skipped.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from mala_asr.scoring import Transcripts, analyze, write_page
from tests.scoring.random_pairs import random_pairs

BROWSERS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "chrome",
)
EVIL = "<script>document.title='broken'</script>"
SAID = {
    "ann-1": "the cat sat",
    "ann-2": "hello",
    "ben-1": "one two",
    "ben-2": f"</script>{EVIL} a & b",
}
HEARD = {
    "ann-1": "a bat sat",
    "ann-2": "hello you there oh",
    "ben-1": "one two",
    "ben-2": f"<img src=x onerror=document.title='broken'> {EVIL} &amp;",
}
LENGTHS = {"ann-1": 1.5, "ann-2": 0.75, "ben-1": 12.0}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = os.environ.get("MALA_CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if path is None:
        pytest.skip(
            "no Chromium found; install one, or name it with MALA_CHROMIUM"
        )
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not start as root, as CI often is.
        found = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        yield found
        found.close()


@contextmanager
def opened(
    browser: Browser, path: Path, faults: list[str] | None = None
) -> Iterator[Page]:
    """Open a page; faults of its script and whatever it loads are faults."""
    found: list[str] = [] if faults is None else faults
    page = browser.new_page()
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda message: found.append(message.text))
    page.on("request", lambda request: found.append(request.url))
    page.goto(path.as_uri())
    assert found == [path.as_uri()]
    yield page
    page.close()
    if faults is None:
        assert found == [path.as_uri()]


def shown(page: Page) -> list[str]:
    """Ids of the utterances that the table shows, in order."""
    return page.locator("tr.utterance td:first-child").all_inner_texts()


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    said = Transcripts("csv", SAID, durations=LENGTHS)
    write_page(path, analyze(said, Transcripts("trn", HEARD)), f"hyp {EVIL}")
    return path


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    with opened(browser, report) as page:
        yield page


def test_totals_and_intervals(page: Page) -> None:
    said = Transcripts("csv", SAID, durations=LENGTHS)
    found = analyze(said, Transcripts("trn", HEARD))
    card = page.locator("#card-WER").inner_text()
    assert f"{found.report.wer:.2f} %" in card
    for interval in found.intervals:
        assert (
            f"{interval.low:.2f} to {interval.high:.2f} over {interval.size} "
            f"{interval.unit} (few, so too narrow), 95%"
        ) in card
    assert "66.67" not in card
    assert "75.00 %" in page.locator("#card-SER").inner_text()
    assert "Normalization: none" in page.locator("#settings").inner_text()
    assert "%WER" in page.locator("#text").text_content()


def test_sorting(page: Page) -> None:
    assert shown(page) == ["ben-2", "ann-2", "ann-1", "ben-1"]
    head = page.locator("#utterances th")
    assert head.nth(4).get_attribute("aria-sort") == "descending"
    head.get_by_text("errors").click()
    assert shown(page) == ["ben-1", "ann-1", "ann-2", "ben-2"]
    assert head.nth(4).get_attribute("aria-sort") == "ascending"
    head.get_by_text("WER").click()
    assert shown(page)[:2] == ["ann-2", "ben-2"]
    head.get_by_text("id", exact=True).click()
    assert shown(page) == ["ann-1", "ann-2", "ben-1", "ben-2"]
    # Without a duration, last in both directions.
    head.get_by_text("seconds").click()
    assert shown(page) == ["ben-1", "ann-1", "ann-2", "ben-2"]
    head.get_by_text("seconds").click()
    assert shown(page) == ["ann-2", "ann-1", "ben-1", "ben-2"]


def test_filtering(page: Page) -> None:
    page.fill("#search", "CAT")
    assert shown(page) == ["ann-1"]
    page.fill("#search", "nowhere")
    assert shown(page) == []
    assert page.inner_text("#shown") == "none"
    page.fill("#search", "")
    page.select_option("#speaker", label="ben")
    assert shown(page) == ["ben-2", "ben-1"]
    page.check("#wrong")
    assert shown(page) == ["ben-2"]
    assert page.inner_text("#shown") == "1 to 1 of 1"
    page.select_option("#speaker", label="all")
    assert shown(page) == ["ben-2", "ann-2", "ann-1"]


def test_a_confusion_shows_its_utterances(page: Page) -> None:
    assert page.locator("#substitutions tr").count() > 2
    page.locator("#substitutions button").get_by_text("cat → bat").click()
    assert page.input_value("#search") == "cat>bat"
    assert shown(page) == ["ann-1"]
    page.locator("#insertions button").get_by_text("you").click()
    assert shown(page) == ["ann-2"]


def test_alignments_are_coloured(page: Page) -> None:
    page.fill("#search", "ann-1")
    row = page.locator("td.words")
    assert row.inner_text().split() == "the a cat bat sat".split()
    assert row.locator(".sub").count() == 2
    page.fill("#search", "ann-2")
    assert row.locator(".ins").all_inner_texts() == ["you", "there", "oh"]
    colours = {
        page.eval_on_selector(
            f".legend .{kind}", "node => getComputedStyle(node).color"
        )
        for kind in ("sub", "del", "ins")
    }
    assert len(colours) == 3


def test_plots(page: Page) -> None:
    titles = [
        t.text_content() for t in page.locator("#by-duration title").all()
    ]
    assert [t.partition(":")[0] for t in titles] == [
        "0-2 s",
        "10-15 s",
        "unknown",
    ]
    bars = page.locator("#by-speaker .bar")
    heights = [float(bar.get_attribute("height")) for bar in bars.all()]
    assert len(heights) == 2
    assert heights[0] > heights[1] > 0
    assert page.locator("#by-speaker .whisker").count() == 2


def test_words_stay_words(page: Page) -> None:
    """Neither the words nor the title can become a part of the page."""
    assert page.title() == f"hyp {EVIL}"
    assert page.inner_text("h1") == f"hyp {EVIL}"
    page.fill("#search", "ben-2")
    assert EVIL in page.inner_text("td.words")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2


def test_only_its_own_script_may_run(browser: Browser, report: Path) -> None:
    faults: list[str] = []
    with opened(browser, report, faults) as page:
        page.evaluate(
            """() => {
              window.ran = false;
              const script = document.createElement("script");
              script.textContent = "window.ran = true";
              document.body.append(script);
            }"""
        )
        assert page.evaluate("() => window.ran") is False
    assert "Content Security Policy" in faults[-1]


def test_a_comparison(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    sides = [Transcripts("trn", texts) for texts in (SAID, HEARD, SAID)]
    write_page(path, analyze(*sides), "two systems")
    with opened(browser, path) as page:
        assert "second system 0.00 %" in page.inner_text("#comparison")
        page.locator("#utterances th").get_by_text("difference").click()
        assert shown(page)[0] == "ben-1"
        page.fill("#search", "ann-1")
        lines = page.locator("td.words div").all_inner_texts()
        assert [line.split() for line in lines] == [
            "1: the a cat bat sat".split(),
            "2: the cat sat".split(),
        ]


def test_ten_thousand_utterances(browser: Browser, tmp_path: Path) -> None:
    said, heard = random_pairs(10_000, seed=1, speakers=100)
    path = tmp_path / "report.html"
    found = analyze(Transcripts("trn", said), Transcripts("trn", heard))
    write_page(path, found, "many")
    with opened(browser, path) as page:
        assert page.inner_text("#shown") == "1 to 50 of 10000"
        assert len(shown(page)) == 50
        page.click("#next")
        assert page.inner_text("#shown") == "51 to 100 of 10000"
        page.click("#previous")
        assert page.inner_text("#shown") == "1 to 50 of 10000"
        seconds = page.evaluate(
            """() => {
              const start = performance.now();
              document.querySelector("#utterances th button").click();
              const search = document.getElementById("search");
              search.value = "spk7-";
              search.dispatchEvent(new Event("input", { bubbles: true }));
              return (performance.now() - start) / 1000;
            }"""
        )
        assert page.inner_text("#shown") == "1 to 50 of 100"
        # A slow machine's share; a tenth of it is usual.
        assert seconds < 2


def test_data_cannot_end_its_element(report: Path) -> None:
    """What a browser makes of it is tested above; this needs none."""
    text = report.read_text(encoding="utf-8")
    data = re.findall(r'<script id="data"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert len(data) == 1
    assert "<" not in data[0]
    words = [
        step if isinstance(step, str) else step[0]
        for step in json.loads(data[0])["rows"][3][5]
    ]
    assert " ".join(filter(None, words)) == SAID["ben-2"]
    assert text.count("<script") == 2
    assert not re.search(r"\b(src|href)=", text.replace(data[0], ""))
