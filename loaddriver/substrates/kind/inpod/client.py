"""Runs in a pod: asks a URL until the expected body comes, or says what came instead."""

import sys
import time
from urllib.request import urlopen

url, expected, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
deadline = time.monotonic() + seconds
came = "nothing"
while time.monotonic() < deadline:
    try:
        with urlopen(url, timeout=2) as response:
            body = response.read(1000).decode(errors="replace")
    except OSError as error:
        came = str(error)
    else:
        if body == expected:
            sys.exit(0)
        came = f"another body: {body!r}"
    time.sleep(0.2)
sys.exit(f"asked {url} for {seconds:g} s, and last there was {came}")
