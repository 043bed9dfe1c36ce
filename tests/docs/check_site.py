#!/usr/bin/env python3
"""Builds the site (docs/tools/build_site.py) and checks it.

  * mkdocs has no warning.
  * Every link inside the site, its fragment included, leads somewhere; every name of the reference
    has an anchor, and can be searched for.
  * Nothing is fetched from elsewhere: no script, style, font or image.
With --browser every page is opened in Chromium as well, as wide as a desk's window and as a phone's: no
complaint in the console, nothing wider than the window, and a search that finds names and their parts, and design notes last.
Without mkdocs and its theme Material, or without Chromium, the test prints a message and passes.
Usage: check_site.py BUILD [--browser] [--pictures FOLDER]
"""
import argparse
import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from urllib.parse import quote, unquote, urldefrag, urljoin

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(ROOT, "docs", "tools"))
from pages import read  # noqa: E402

LEAST_PAGES, LEAST_LINKS, LEAST_NAMES = 45, 3000, 600
WIDTHS = (1280, 360)
PICTURES = ("index.html", "gpu.html", "performance.html", "reference/nn.html", "reference/index.html")

# Elements that end right of the window, except inside something that scrolls and in the closed dialog of the search.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(e => {
    const scrolls = e.parentElement.closest('pre, .md-typeset__scrollwrap, .md-search');
    return !scrolls && e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 0.5;
}).map(e => e.outerHTML.slice(0, 80))"""


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.update(v for k, v in attributes if k in ("id", "name") and v)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in ("link", "script", "img") and (given.get("href") or given.get("src")):
            self.fetched.append(given.get("href") or given["src"])


def files_of(site, ending):
    for folder, _, files in os.walk(site):
        for name in sorted(files):
            if name.endswith(ending):
                yield os.path.relpath(os.path.join(folder, name), site)


def check_links(site, errors):
    """Links and what pages fetch, over all pages of the site. Number of links inside it."""
    pages = {p: Page(read(os.path.join(site, p))) for p in files_of(site, ".html")}
    count = 0
    for path, page in pages.items():
        for link in page.links + page.fetched:
            if re.match(r"[a-z]+:", link):
                if link in page.fetched:
                    errors.append(f"{path} fetches {link}")
                continue
            count += 1
            to, fragment = urldefrag(urljoin("/" + path, link))
            to = unquote(to).lstrip("/")
            if not os.path.isfile(os.path.join(site, to)) and not to == "":
                errors.append(f"{path}: there is no {link}")
            elif fragment and to in pages and fragment not in pages[to].ids:
                errors.append(f"{path}: {to} has no #{fragment}")
    return len(pages), count


def check_styles(site, errors):
    for path in files_of(site, ".css"):
        for url in re.findall(r"(?:url\(|@import\s+)[\"']?(https?:[^\"')]+)", read(os.path.join(site, path))):
            errors.append(f"{path} fetches {url}")


def check_reference(site, errors):
    """Every public name has an anchor in the reference, and is in the index of the search."""
    import headers
    names = set(headers.symbols(ROOT))
    anchors = set()
    for path in files_of(os.path.join(site, "reference"), ".html"):
        anchors |= Page(read(os.path.join(site, "reference", path))).ids
    words = set(re.findall(r"\w+", read(os.path.join(site, "search", "search_index.json"))))
    errors += [f"the reference has no anchor for {n}" for n in sorted(names - anchors)]
    errors += [f"the search does not know {n}" for n in sorted(names - words)]
    return len(names)


def check_pages(site, errors):
    pages, links = check_links(site, errors)
    check_styles(site, errors)
    names = check_reference(site, errors)
    for count, least, what in ((pages, LEAST_PAGES, "pages"), (links, LEAST_LINKS, "links"), (names, LEAST_NAMES, "names")):
        if count < least:
            errors.append(f"found {count} {what} only, expected at least {least}")
    return f"{pages} pages, {links} links, {names} names"


# ---- in a browser -------------------------------------------------------------------------------------

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *ignored):
        pass


def look(page, where, width, errors):
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    errors += [f"{where}: {c}" for c in page.complaints]
    errors += [f"{where}: asks for {r}" for r in page.requests if not r.startswith(("http://127.0.0.1:", "data:"))]
    if page.value("document.documentElement.scrollWidth") > width:
        errors.append(f"{where}: wider than the window")
    errors += [f"{where}: too wide: {e}" for e in page.value(TOO_WIDE)]


def search(browser, address, words):
    """The results of a search for the words, the best one first."""
    page = browser.open(address + "index.html?q=" + quote(words))
    found = page.value("""new Promise(done => { const wait = n => {
        const found = [...document.querySelectorAll('.md-search-result__item > a')].map(a => a.getAttribute('href'));
        found.length || n == 0 ? done(found) : setTimeout(wait, 100, n - 1); }; wait(100); })""")
    page.close()
    return [f.partition("?")[0] for f in found]


def check_search(browser, address, errors):
    """A search finds a name, and a part of a name; design notes come after other pages."""
    for words in ("fx_batchnorm", "atchnor"):
        found = search(browser, address, words)
        if not any("reference/nn.html" in f for f in found):
            errors.append(f"a search for {words} finds only {found}")
    notes = ["design/" in f for f in search(browser, address, "gradient")]
    if notes != sorted(notes):
        errors.append(f"a search for gradient finds design notes before other pages: {notes}")
    if not any("design/" in f for f in search(browser, address, "consequences")):
        errors.append("a search for consequences finds no design note")


def check_browser(site, pictures, errors):
    from browser import Browser, Missing
    handler = functools.partial(Quiet, directory=site)
    try:
        browser = Browser()
    except Missing as why:
        print(f"skipped: the site in a browser: {why}")
        return
    pages = [p for p in files_of(site, ".html") if p != "404.html"]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        for path in pages:
            page = browser.open(address + path)
            for width in WIDTHS:
                look(page, f"{path} at {width}", width, errors)
                if pictures and path in PICTURES:
                    page.picture(os.path.join(pictures, f"{path.replace('/', '-')[:-5]}-{width}.png"))
            page.close()
        check_search(browser, address, errors)
        server.shutdown()
    print(f"{len(pages)} pages looked at, at {len(WIDTHS)} widths")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--pictures")
    options = parser.parse_args()
    import build_site
    if build_site.missing():
        print(f"skipped: the site: {build_site.missing()}")
        return 0
    built = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "docs", "tools", "build_site.py"),
                            options.build, "--strict"], text=True, capture_output=True)
    if built.returncode:
        print(built.stdout + built.stderr, file=sys.stderr)
        return 1
    site, errors = os.path.join(options.build, "site"), []
    print(check_pages(site, errors))
    if options.browser:
        check_browser(site, options.pictures, errors)
    for e in errors:
        print(e, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
