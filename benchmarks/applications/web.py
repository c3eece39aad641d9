"""A web service: magika behind waitress answers an hour's worth of requests, one a second, as fast as it can.

What was answered goes to standard output, every answer once with how often it was given; milliseconds of a request to standard
error. Eight clients ask at a time, with contents of all lengths.
"""

import http.client
import random
import statistics
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from kind import CONTENTS
from magika import Magika
from waitress.server import create_server

REQUESTS, CLIENTS = 3600, 8


def main() -> None:
    """Identify, and tell."""
    tell = Magika()

    def service(environ, start_response):
        found = tell.identify_bytes(environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{found.output.label} {found.score:.3f}".encode()]

    server = create_server(service, host="127.0.0.1", port=0, threads=4)
    threading.Thread(target=server.run, daemon=True).start()

    def ask(number: int) -> tuple[str, float]:
        draws = random.Random(number)
        content = draws.choice(CONTENTS)[: draws.randint(16, 4096)]
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", server.effective_port, timeout=60)
        connection.request("POST", "/", content)
        answer = connection.getresponse()
        said = f"{answer.status} {answer.read().decode()}"
        connection.close()
        return said, time.perf_counter() - begun

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(ask, range(REQUESTS)))
    for said, times in sorted(Counter(said for said, _ in answers).items()):
        print(times, said)
    print(f"{statistics.median(seconds for _, seconds in answers) * 1e3:.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
