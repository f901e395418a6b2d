#!/usr/bin/env python3
"""The script of the report's page (profiler/export/page/report.js) in a real browser: page_script_test.py WARPSTEP

Records a short training, opens its report in headless Chromium and uses it as a reader does: with mouse, keys and window
sizes. Skipped where no Chromium is installed, or none starts.
"""
import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 30  # for an answer of the browser


def nanoseconds(text):
    number, unit = (text + " ns").split()[:2]  # "0" has no unit
    return float(number) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]


class Browser:
    """Chromium with one page, driven by its DevTools protocol over a pair of pipes: JSON messages that end with a zero byte."""

    def __init__(self, folder):
        program = next(filter(None, map(shutil.which, NAMES)))
        to_read, to_write = os.pipe()  # the browser reads its file 3 and writes its file 4
        from_read, from_write = os.pipe()
        wrapper = f'exec 3<&{to_read} 4>&{from_write}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", wrapper, "bash", program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={folder}/profile", "about:blank"],
            pass_fds=[to_read, from_write], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.commands, self.answers = os.fdopen(to_write, "wb", 0), os.fdopen(from_read, "rb", 0)
        self.rest, self.last, self.session = b"", 0, None
        page = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self.call("Page.enable")

    def close(self):
        self.commands.close()
        self.answers.close()
        self.process.kill()
        self.process.wait()

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                received = os.read(self.answers.fileno(), 1 << 16)
                if not received:
                    raise OSError(f"the browser ended at {method}")
                self.rest += received
            answer, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def value(self, expression):
        """Of a JavaScript expression in the page, in which $ finds the first element and $$ all of them."""
        helpers = "const $ = q => document.querySelector(q), $$ = q => Array.from(document.querySelectorAll(q));"
        result = self.call("Runtime.evaluate", expression=f"(() => {{ {helpers} return {expression}; }})()",
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression):
        """Waits for what the page does by itself after its layout has changed."""
        ends = time.monotonic() + SECONDS
        while not self.value(expression):
            if time.monotonic() > ends:
                raise AssertionError(f"never came true: {expression}")
            time.sleep(0.01)

    def open(self, url, width=1200, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="about:blank")  # else another fragment of the same page would not load it again
        self.call("Page.navigate", url=url)
        self.until("location.protocol === 'file:' && document.readyState === 'complete'")

    def mouse(self, kind, x, y):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1,
                  buttons=0 if kind == "mouseReleased" else 1)

    def click(self, query):
        # Sections are laid out when they come into view, which moves what is below them.
        place, before = self.place(query), None
        while place != before:
            before, place = place, self.place(query)
        self.mouse("mousePressed", *place)
        self.mouse("mouseReleased", *place)

    def place(self, query):
        """The middle of an element that was scrolled into view, two frames later."""
        return self.value(f"""(async element => {{
            element.scrollIntoView({{block: 'center', behavior: 'instant'}});
            for (let frame = 0; frame < 2; ++frame) await new Promise(requestAnimationFrame);
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})($({query!r}))""")

    def type(self, query, text):
        self.value(f"$({query!r}).focus()")
        self.value(f"$({query!r}).select()")
        self.call("Input.insertText", text=text) if text else self.call(
            "Input.dispatchKeyEvent", type="keyDown", key="Delete", windowsVirtualKeyCode=46)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(cls.folder.cleanup)
        path = pathlib.Path(cls.folder.name)

        def warpstep(*arguments):
            done = subprocess.run([WARPSTEP, *arguments], cwd=path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        warpstep("data", "make", "pictures", "--train", "256", "--test", "64")
        warpstep("train", "mlp", "--data", "pictures", "--steps", "16", "--batch", "32", "--profile", "spans", "--out", "run")
        cls.tables = json.loads(warpstep("report", "run", "--json"))["tables"]
        cls.url = (path / "run/report.html").as_uri()
        cls.browser = Browser(cls.folder.name)
        cls.addClassCleanup(cls.browser.close)

    def page(self, fragment="", **how):
        self.browser.open(self.url + fragment, **how)
        return self.browser

    def rows(self, key):
        """Of a table on the page: its rows as dictionaries of numbers, of None, and of text."""
        return self.browser.value(f"""(table => {{
            const names = Array.from(table.tHead.rows[0].cells, head => head.dataset.k);
            const number = text => text === '' ? null : Number(text);
            return Array.from(table.tBodies[0].rows).filter(row => !row.hidden).map(row =>
                Object.fromEntries(Array.from(row.cells, (cell, at) =>
                    [names[at], cell.dataset.v === undefined ? cell.textContent : number(cell.dataset.v)])));
        }})($('table[data-key="{key}"]'))""")

    def column(self, key, name):
        return [row[name] for row in self.rows(key)]

    def open_details(self, query):
        self.browser.value(f"(e => {{ for (; e; e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true; }})($({query!r}))")

    def modules(self):
        """The names of the tree's rows that can be seen, from the top."""
        return self.browser.value("$$('#modules .level .name').filter(e => e.checkVisibility()).map(e => e.textContent)")

    def folded(self):
        return self.browser.value("$$('details.fold').filter(e => !e.open).map(e => e.parentElement.id)")

    def heading(self):
        return self.browser.value("$('#lanes h3').textContent")

    def press(self, label):
        self.browser.click(f'button[aria-label="{label}"]')

    def test_the_pages_policy_admits_its_script(self):
        page = self.page()
        self.assertFalse(page.value("$('#theme').hidden"))
        self.assertEqual(page.value("$$('.table').length"), page.value("$$('.table .tools button').length"))

    def test_the_theme_follows_the_system_until_it_is_chosen(self):
        colour = "getComputedStyle(document.body).backgroundColor"
        light = self.page().value(colour)
        page = self.page(dark=True)
        dark = page.value(colour)
        self.assertNotEqual(light, dark)
        self.assertEqual(page.value("$('#theme').textContent"), "Light theme")
        page.click("#theme")
        self.assertEqual([page.value(colour), page.value("$('#theme').textContent")], [light, "Dark theme"])
        page.click("#theme")
        self.assertEqual([page.value(colour), page.value("$('#theme').textContent")], [dark, "Light theme"])

    def test_a_table_is_sorted_by_the_column_that_is_pressed(self):
        page = self.page("#layers")
        self.open_details('table[data-key="calls"]')
        head = 'table[data-key="calls"] th[data-k="{}"]'.format
        at_first = self.column("calls", "ns")
        self.assertEqual(at_first, sorted(at_first, reverse=True))
        self.assertEqual(page.value(f"$('{head('ns')}').getAttribute('aria-sort')"), "descending")
        page.click(head("ns") + " button")
        self.assertEqual(self.column("calls", "ns"), sorted(at_first))
        self.assertEqual(page.value(f"$('{head('ns')}').getAttribute('aria-sort')"), "ascending")
        name = page.value("$('table[data-key=\"calls\"] th').dataset.k")
        page.click(head(name) + " button")
        names = self.column("calls", name)
        self.assertEqual(names, page.value(f"{json.dumps(names)}.sort((a, b) => a.localeCompare(b))"))
        self.assertEqual(page.value("$$('table[data-key=\"calls\"] th[aria-sort]').length"), 1)

    def test_what_is_unknown_is_last_in_both_orders(self):
        page = self.page("#layers")
        self.open_details('table[data-key="layers"]')
        for _ in range(2):
            page.click('table[data-key="layers"] th[data-k="data_grad_ns"] button')
            values = self.column("layers", "data_grad_ns")
            known = [value for value in values if value is not None]
            self.assertLess(len(known), len(values))
            self.assertEqual(values[:len(known)], known)
            self.assertGreater(len(set(known)), 1)

    def test_a_download_has_the_tables_values_in_base_units(self):
        page = self.page("#layers")
        page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=self.folder.name)
        self.open_details('table[data-key="layers"]')
        self.press("Download Layers as CSV")
        file = pathlib.Path(self.folder.name) / "layers.csv"
        ends = time.monotonic() + SECONDS
        while not (file.is_file() and file.stat().st_size) and time.monotonic() < ends:
            time.sleep(0.01)
        with file.open(newline="") as stream:
            saved = list(csv.DictReader(stream))
        printed = self.tables["layers"]
        self.assertGreater(len(printed), 3)
        self.assertEqual([row["layer"] for row in saved], self.column("layers", "layer"))
        self.assertEqual({row["layer"] for row in saved}, {row["layer"] for row in printed})
        for theirs in printed:
            ours = next(row for row in saved if row["layer"] == theirs["layer"])
            for name, value in ours.items():
                if name == "layer" or (value == "" and not theirs[name]):
                    continue
                self.assertAlmostEqual(float(value), theirs[name], delta=1e-9 * abs(theirs[name]))

    def test_a_filter_leaves_the_rows_with_all_of_its_words(self):
        page = self.page("#layers")
        self.open_details('table[data-key="calls"]')
        everything = self.rows("calls")
        page.type('input[aria-label="Filter Calls"]', "FC1 linear")
        left = self.rows("calls")
        self.assertTrue(0 < len(left) < len(everything))
        for row in everything:
            content = " ".join(str(value) for value in row.values()).lower()
            self.assertEqual(row in left, "fc1" in content and "linear" in content, row)
        page.type('input[aria-label="Filter Calls"]', "")
        self.assertEqual(self.rows("calls"), everything)

    def test_the_search_unfolds_the_tree_and_counts_what_it_finds(self):
        page = self.page()
        field, found = ".search input", "$('.found').textContent"
        at_first = self.modules()
        page.type(field, "fc2")
        hits = dict(re.findall(r"([A-Z][a-z ]+) \((\d+)\)", page.value(found)))
        self.assertIn("Calls", hits)
        self.assertEqual(len(self.rows("calls")), int(hits["Calls"]))
        self.assertIn("fc2", self.modules())
        self.assertNotIn("fc1", self.modules())
        self.assertGreater(len(self.modules()), 1)  # the calls within fc2
        self.assertEqual(page.value("$('.found a').getAttribute('href')"), "#layers")
        page.type(field, "linear")  # of calls; their layers, which have no such word, are shown around them
        self.assertTrue({"fc1", "fc2", "linear"} <= set(self.modules()), self.modules())
        page.type(field, "no such thing")
        self.assertEqual(page.value(found), "Found nowhere.")
        self.assertEqual(self.modules(), [])
        page.type(field, "")
        self.assertEqual([page.value(found), self.modules()], ["", at_first])

    def test_the_tree_unfolds_and_has_two_orders(self):
        page = self.page("#layers")
        longest = self.modules()
        place = "$$('#modules > .level > [data-at]').map(e => Number(e.dataset.at))"
        self.assertNotEqual(page.value(place), sorted(page.value(place)))
        self.press("Sort modules in the model's order")
        self.assertEqual(page.value(place), sorted(page.value(place)))
        self.press("Sort modules by time")
        self.assertEqual(self.modules(), longest)
        self.press("Unfold all modules")
        self.assertGreater(len(self.modules()), len(longest))
        self.press("Fold all modules")
        self.assertEqual(self.modules(), longest)

    def test_a_phone_shows_the_advice_and_unfolds_what_a_link_leads_to(self):
        self.assertEqual(self.page().value("$$('details.fold:not([open])').length"), 0)
        page = self.page(width=375)
        sections = page.value("$$('details.fold').map(e => e.parentElement.id)")
        self.assertIn("findings", sections)
        self.assertEqual(self.folded(), [each for each in sections if each != "findings"])
        for _ in range(2):  # the second time the address is already that of the link
            page.value("$('#memory > details.fold').open = false")
            page.value("$('nav a[href=\"#memory\"]').click()")
            page.until("$('#memory > details.fold').open")
        self.page("#loader", width=375)
        self.assertNotIn("loader", self.folded())
        self.assertIn("memory", self.folded())
        page.value("dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(self.folded(), [])

    def test_a_table_says_that_it_is_wider_than_the_window(self):
        page = self.page("#memory")
        wider = "$('table[data-key=\"memory\"]').closest('.table').querySelector('.wider').textContent"
        page.until(f"{wider} === ''")
        for width, text in ((375, "More columns to the right: scroll sideways."), (1200, "")):
            page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            page.until(f"{wider} === {text!r}")

    def test_an_option_is_copied_or_else_selected(self):
        with_option = pathlib.Path(self.folder.name) / "option.html"
        text = pathlib.Path(self.folder.name, "run/report.html").read_text()
        with_option.write_text(text.replace("</main>", '<p><span class="flag"><code>--planted 7</code></span></p></main>'))
        self.browser.open(with_option.as_uri())
        self.browser.call("Browser.setPermission", permission={"name": "clipboard-write"}, setting="denied")
        self.press("Copy --planted 7")
        self.browser.until("getSelection().toString() === '--planted 7'")
        self.browser.call("Browser.setPermission", permission={"name": "clipboard-write"}, setting="granted")
        self.browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.browser.value("getSelection().removeAllRanges()")
        self.browser.value("(button => { button.labels_seen = []; new MutationObserver(() => button.labels_seen.push("
                           "button.textContent)).observe(button, {childList: true}); })($('button[aria-label=\"Copy --planted 7\"]'))")
        self.press("Copy --planted 7")
        self.browser.until("(seen => seen.includes('Copied') && seen.at(-1) === 'Copy')($('button[aria-label=\"Copy --planted 7\"]').labels_seen)")
        self.assertEqual(self.browser.value("getSelection().toString()"), "")

    def test_lanes_are_those_of_the_step_that_is_chosen(self):
        page = self.page("#lanes")
        drawn = page.value("JSON.parse($('#lanes-data').textContent).steps.map(e => [e.step, e.length * 100])")
        recorded = {row["step"]: row["ns"] for row in self.tables["steps"]}
        for step, length in drawn:
            self.assertAlmostEqual(length, recorded[step], delta=100)
        steps = [step for step, _ in drawn]
        self.assertGreater(len(steps), 4)
        for step in (steps[2], steps[-1], steps[0]):
            page.value(f"$('#strip a[data-step=\"{step}\"]').dispatchEvent(new MouseEvent('click', {{bubbles: true, cancelable: true}}))")
            self.assertIn(f"Lanes of step {step},", self.heading())
            self.assertEqual(page.value("$$('#strip a[aria-current]').map(e => e.dataset.step)"), [str(step)])
            self.assertEqual(page.value("$('#lanes caption b').textContent"), f"Step {step} by lane")
            main = [row for row in self.rows("lanes") if row["lane"] == "main"]
            self.assertGreater(len(main), 3)
            self.assertLessEqual(max(row["time_ns"] for row in main), recorded[step] + 100)
        self.press("Step before")  # of the first: stays
        self.assertIn(f"Lanes of step {steps[0]},", self.heading())
        self.press("Next step")
        self.assertIn(f"Lanes of step {steps[1]},", self.heading())

    def test_the_lanes_table_keeps_the_order_that_was_chosen(self):
        page = self.page("#lanes")
        self.open_details('table[data-key="lanes"]')
        page.click('table[data-key="lanes"] th[data-k="time_ns"] button')
        for _ in range(3):
            times = self.column("lanes", "time_ns")
            self.assertEqual(times, sorted(times, reverse=True))
            shown = page.value("$$('table[data-key=\"lanes\"] tbody tr').map(row => row.cells[3].textContent)")
            for text, ns in zip(shown, times, strict=True):
                self.assertAlmostEqual(nanoseconds(text), ns, delta=0.006 * ns + 50)
            self.press("Next step")

    def bars(self):
        """Of the lanes that are drawn: class, begin and length in percent of what is shown."""
        return self.browser.value("$$('#lanes .bars').map(lane => Array.from(lane.querySelectorAll('rect'), bar => ["
                                  "bar.classList[0], parseFloat(bar.getAttribute('x')), parseFloat(bar.getAttribute('width'))]))")

    def test_the_script_draws_the_lanes_that_the_page_came_with(self):
        text = pathlib.Path(self.folder.name, "run/report.html").read_text()
        lanes = text[text.index('<figure class="chart" id="lanes">'):]
        came = [re.findall(r'<rect class="([\w-]+)[^"]*" x="([\d.]+)%" y="\d+" width="([\d.]+)%"', lane) for lane in
                re.findall(r'<g class="bars"[^>]*>(.*?)</g>', lanes[:lanes.index("</svg>\n")], re.DOTALL)]
        self.page("#lanes")
        drawn = self.bars()
        pixel = 100 / self.browser.value("$('#lanes .plot').getBoundingClientRect().width")
        self.assertGreater(sum(map(len, came)), 10)
        for theirs, ours in zip(came, drawn, strict=True):
            self.assertEqual([kind for kind, _, _ in ours], [kind for kind, _, _ in theirs])
            for (_, x, width), (_, their_x, their_width) in zip(ours, theirs):
                self.assertAlmostEqual(x, float(their_x), delta=0.011)
                self.assertAlmostEqual(width, max(float(their_width), pixel), delta=0.011)

    def test_zoomed_bars_are_where_their_times_are(self):
        self.page("#lanes")
        whole = self.bars()
        self.press("Zoom in")  # to the second and third quarter
        pixel = 100 / self.browser.value("$('#lanes .plot').getBoundingClientRect().width")
        expected = 0
        for before, after in zip(whole, self.bars(), strict=True):
            begins = [x for _, x, _ in after]
            for _, x, width in before:
                if 26 < x < 74 and width > pixel:
                    expected += 1
                    self.assertTrue(any(abs(begin - 2 * (x - 25)) < 0.01 for begin in begins), (x, begins))
        self.assertGreater(expected, 2)

    def test_lanes_are_zoomed_by_buttons_and_by_dragging(self):
        page = self.page("#lanes")
        whole = self.heading()

        def part():
            return [nanoseconds(text) for text in re.search(r": (.+) to (.+)$", self.heading()).groups()]

        length = nanoseconds(re.search(r", ([^:]+)$", whole)[1])
        self.press("Zoom in")
        low, high = part()
        self.assertAlmostEqual(low / length, 0.25, delta=0.01)
        self.assertAlmostEqual(high / length, 0.75, delta=0.01)
        self.press("Later")
        self.assertAlmostEqual(part()[0] / length, 0.5, delta=0.01)
        self.press("Later")  # no further than the end
        self.assertAlmostEqual(part()[1] / length, 1, delta=0.01)
        self.press("Earlier")
        self.assertAlmostEqual(part()[0] / length, 0.25, delta=0.01)
        there, back = "Next step", "Step before"
        self.press(there)  # is shown whole
        if " to " in self.heading():  # the step shown first, the median, is the last one
            there, back = back, there
            self.press(there)
        self.assertNotIn(" to ", self.heading())
        self.assertNotEqual(self.heading(), whole)
        self.press(back)
        self.assertEqual(self.heading(), whole)
        self.press("Zoom in")
        self.press("Show the whole step")
        self.assertEqual(self.heading(), whole)
        self.press("Zoom out")
        self.assertEqual(self.heading(), whole)
        page.value("$('#lanes .plot').scrollIntoView({block: 'center', behavior: 'instant'})")
        x, y, width = page.value("(b => [b.x, b.y + 40, b.width])($('#lanes .plot').getBoundingClientRect())")
        page.mouse("mousePressed", x + 0.6 * width, y)
        page.mouse("mouseMoved", x + 0.3 * width, y)
        self.assertEqual(page.value("$$('#lanes .selection').length"), 1)
        page.mouse("mouseReleased", x + 0.3 * width, y)
        self.assertEqual(page.value("$$('#lanes .selection').length"), 0)
        low, high = part()
        self.assertAlmostEqual(low / length, 0.3, delta=0.02)
        self.assertAlmostEqual(high / length, 0.6, delta=0.02)
        ticks = page.value("$$('#lanes .axis text').map(e => e.textContent)")
        self.assertEqual(len(ticks), len(set(ticks)))
        apart = nanoseconds(ticks[1]) - nanoseconds(ticks[0])
        self.assertIn(f"{apart:.0e}"[0], "125")  # 1, 2 or 5 units of a power of ten
        self.assertTrue(all(low * 0.99 <= nanoseconds(tick) <= high * 1.01 for tick in ticks), (ticks, low, high))


def why_not():
    """Why no browser can be used here, or None."""
    if not any(map(shutil.which, NAMES)):
        return "no Chromium is installed"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            Browser(folder).close()
        except OSError as error:
            return f"Chromium does not start here: {error}"
    return None


if __name__ == "__main__":
    WARPSTEP = pathlib.Path(sys.argv.pop(1)).resolve()
    if reason := why_not():
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    unittest.main()
