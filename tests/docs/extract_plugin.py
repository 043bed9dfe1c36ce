#!/usr/bin/env python3
"""Writes the plugin of a page: its blocks `c plugin=NAME`, in their order.

The build makes the tests' stand-in devices from it, so that the page and what is tested are one text.
Usage: extract_plugin.py PAGE NAME OUTPUT
"""
import sys

from check_docs import blocks_of, plugin_text


def main():
    page, name, output = sys.argv[1:]
    with open(page, encoding="utf-8") as f:
        text = plugin_text(blocks_of(f.read()), name)
    if not text:
        sys.exit(f"{page} has no block of a plugin {name}")
    with open(output, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
