"""Accessibility: keyboard, screen reader, both themes, zoom, small screens."""

from urllib.parse import urlencode

import pytest

CONTRAST = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (element) => {
    for (let parent = element; parent; parent = parent.parentElement) {
      const colour = parse(getComputedStyle(parent).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
      if (colour[3] > 0) throw new Error("half transparent");
    }
    throw new Error("no background");
  };
  const ratios = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(background(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    ratios.push([ratio, walk.currentNode.textContent.trim().slice(0, 40)]);
  }
  return ratios;
}"""


def axe(page):
    """Return the violations that axe-core detects, as text."""
    from axe_playwright_python.sync_playwright import Axe

    results = Axe().run(page, options={"resultTypes": ["violations"]})
    return results.generate_report() if results.violations_count else ""


@pytest.fixture
def page_with_labels(server, open_page, wait_for, text):
    def page_with_labels(**options):
        page = open_page(server, urlencode({"text": text}), **options)
        wait_for(page, server.best(text))
        return page

    return page_with_labels


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_axe(page_with_labels, server, scheme):
    page = page_with_labels(color_scheme=scheme, reduced_motion="reduce")
    page.locator(".why").first.click()
    page.locator(".panel table").wait_for()
    page.get_by_role("slider", name="Boost rare labels").press("ArrowRight")
    page.get_by_role("button", name="Copy as curl").click()
    page.route("**/labels", lambda route: route.fulfill(status=422, json={"error": {"message": "no"}}))
    page.allowed = "status of 422"
    page.get_by_label("Label text").fill("x")
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#add-status.error").wait_for()
    page.get_by_label("Labels to show").fill("0")
    page.wait_for_timeout(600)  # announcements
    ratios = page.evaluate(CONTRAST)
    assert len(ratios) > 50
    assert [ratio for ratio in ratios if ratio[0] < 4.5] == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 28)")
    assert axe(page) == ""


def test_axe_without_labels(server, open_page):
    page = open_page(server, reduced_motion="reduce")
    page.locator("#examples button").first.wait_for()
    assert axe(page) == ""
    page.route("**/predict", lambda route: route.abort())
    page.allowed = "ERR_FAILED"
    page.locator("#text").fill("a text")
    page.locator("#message").wait_for()
    assert axe(page) == ""
    assert all(ratio >= 4.5 for ratio, _ in page.evaluate(CONTRAST))


@pytest.mark.extra
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 320)])
def test_the_other_views(page_with_labels, server, text, scheme, width):
    """Contrast, axe, and nothing cut off, with every part of each view open."""
    page = page_with_labels(color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800})

    def check():
        assert [ratio for ratio in page.evaluate(CONTRAST) if ratio[0] < 4.5] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert axe(page) == ""

    page.locator(".verdict .accepted").first.click()
    page.locator(".verdict .rejected").nth(1).click()
    page.locator("#text").press("Control+Enter")
    page.locator("#history summary").click()
    page.locator("#review-find").fill("ka")
    page.locator("#review-matches li").first.wait_for()
    page.locator("#review-find").press("ArrowDown")
    check()
    page.locator("#review-find").press("Enter")
    page.get_by_role("link", name="Labels", exact=True).click()
    page.locator("#browse-rows tr").first.wait_for()
    check()
    page.get_by_role("link", name="Corrections").click()
    check()
    page.get_by_role("button", name="Forget all").click()
    assert axe(page) == ""
    page.keyboard.press("Escape")
    page.get_by_role("link", name="CSV file").click()
    check()
    content = f"id,text\n1,{text}\n2,{'x' * 100_001}\n3,\n"
    page.set_input_files("#file-input", {"name": "a.csv", "mimeType": "text/csv", "buffer": content.encode()})
    page.locator("#file-message").wait_for()
    check()
    page.set_input_files("#file-input", {"name": "a.csv", "mimeType": "text/csv", "buffer": content[:80].encode()})
    page.locator("#file-message").wait_for(state="hidden")
    held = []
    page.route("**/predict", lambda route: held.append(route))
    page.locator("#file-start").click()
    page.locator("#file-work").wait_for()
    check()
    while not held:
        page.wait_for_timeout(50)
    held[0].continue_()
    page.locator("#file-done").wait_for()
    check()


def test_the_views_by_keyboard(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": text}))
    wait_for(page, server.best(text))
    page.get_by_role("link", name="CSV file").focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("link", name="CSV file").get_attribute("aria-current") == "page"
    assert "view=file" in page.url
    assert "text=" in page.url
    page.get_by_role("link", name="Skip to the results").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "file"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file-input"
    page.set_input_files("#file-input", {"name": "a.csv", "mimeType": "text/csv", "buffer": f"text\n{text}\n".encode()})
    page.wait_for_function("() => document.activeElement.id === 'file-column'")
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file-start"
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'file-download'")
    # A tick, from the keyboard
    page.get_by_role("link", name="One text").press("Enter")
    page.locator(".why").first.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator(".verdict .accepted").first.get_attribute("aria-pressed") == "true"


def test_axe_in_dialogs(page_with_labels):
    page = page_with_labels(reduced_motion="reduce")
    page.locator(".why").first.click()
    for name in ("Rename …", "Remove …"):
        page.get_by_role("button", name=name).click()
        assert axe(page) == ""
        page.keyboard.press("Escape")


def test_theme_is_kept(page_with_labels):
    page = page_with_labels(color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(20, 24, 28)"
    page.get_by_label("Theme").select_option("Light")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.reload()
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.wait_for_function("() => document.getElementById('theme').value === 'light'")  # once the modules have run
    page.get_by_label("Theme").select_option("System")
    assert page.evaluate(background) == "rgb(20, 24, 28)"


def test_keyboard(server, open_page, wait_for, text):
    page = open_page(server)
    page.locator("#examples button").first.wait_for()

    def focused():
        return page.evaluate(
            "(document.activeElement.ariaLabel || document.activeElement.labels?.[0]?.textContent"
            " || document.activeElement.textContent).trim()"
        )

    assert focused() == "Text"  # ready to type
    page.keyboard.type(text)
    page.keyboard.press("Control+Enter")
    wait_for(page, server.best(text))
    order = []
    while "Why" not in (name := focused()):
        order.append(name)
        page.keyboard.press("Tab")
        assert len(order) < 12
    assert order == [
        "Text",
        "Find labels",
        "Last texts 1",
        "all",
        "Boost rare labels",
        "Labels to show",
        "Minimum score",
    ]
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"
    page.keyboard.press("Enter")
    page.locator(".panel table").wait_for()
    assert page.locator(".why").first.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Space")
    assert page.locator(".panel").first.is_hidden()
    # Heads by arrow keys
    page.get_by_role("radio", name="all").focus()
    page.keyboard.press("ArrowRight")
    wait_for(page, server.best(text, heads="dual"))
    assert page.evaluate("getComputedStyle(document.activeElement.nextSibling).outlineStyle") == "solid"
    # The skip link, first on the page
    page.locator("h1").click()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    page.get_by_role("link", name="Skip to the results").focus()
    assert page.locator("#skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    assert "text=" in page.url


def test_accessibility_tree(page_with_labels, server, text):
    page = page_with_labels()
    best = server.best(text)[0]
    tree = page.locator("body").aria_snapshot()
    for part in (
        "banner", "main", "contentinfo", 'heading "Labels" [level=2]', 'region "Labels"', 'form "Text and settings"',
        'textbox "Text"', 'group "Heads"', 'radio "all" [checked]', 'slider "Boost rare labels"',
        'spinbutton "Labels to show"', 'combobox "Theme"', "status",
    ):  # fmt: skip
        assert part in tree, part
    assert f'button "Why {best["text"]}"' in tree
    first = page.locator("#list > li").first.aria_snapshot()
    for word in (best["text"], best["uid"], best["frequency"], "score"):
        assert word in first


@pytest.mark.parametrize(("width", "scale"), [(320, 1), (640, 2)], ids=["320 px", "200%"])
def test_nothing_is_cut_off(page_with_labels, width, scale):
    page = page_with_labels(viewport={"width": width, "height": 700}, device_scale_factor=scale)
    page.locator(".why").first.click()
    page.locator(".panel table").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        """() => [...document.querySelectorAll("main *, header *")]
             .filter(element => element.checkVisibility() && !element.closest(".unseen, .skip, pre"))
             .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
             .map(element => element.outerHTML.slice(0, 80))"""
    )
    assert outside == []


@pytest.mark.parametrize(("preference", "moves"), [("reduce", False), ("no-preference", True)])
def test_labels_move_only_without_reduced_motion(page_with_labels, server, wait_for, text, preference, moves):
    page = page_with_labels(reduced_motion=preference)
    page.evaluate(
        """() => {
             const animate = Element.prototype.animate;
             window.moved = 0;
             Element.prototype.animate = function (...options) { window.moved++; return animate.apply(this, options); };
           }"""
    )
    page.get_by_role("slider", name="Boost rare labels").press("End")
    wait_for(page, server.best(text, tail=1.0))
    assert bool(page.evaluate("window.moved")) is moves
