"""What was found in a history: `document.py` as a document, which `--json` prints; `page.py` as an HTML page."""
