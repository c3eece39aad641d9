"""magika says what kind of file a content is: the kinds on standard output, milliseconds on standard error."""

import statistics
import sys
import time

from magika import Magika

CONTENTS = (
    b"def main() -> None:\n    print('hello')\n\n\nif __name__ == '__main__':\n    main()\n" * 20,
    b"<!doctype html><html><head><title>x</title></head><body><p>Hello</p></body></html>" * 20,
    b'{"name": "engine", "nodes": [1, 2, 3], "weights": {"a": 0.5}}' * 20,
    b'#include <stdio.h>\nint main(void) { printf("%d\\n", 42); return 0; }\n' * 20,
    b"SELECT name, count(*) FROM nodes WHERE kind = 'Conv' GROUP BY name ORDER BY 2 DESC;\n" * 20,
)


def main() -> None:
    """Identify, and tell."""
    tell = Magika()
    seconds = []
    for _ in range(20):
        for content in CONTENTS:
            begun = time.perf_counter()
            found = tell.identify_bytes(content)
            seconds.append(time.perf_counter() - begun)
            print(found.output.label, f"{found.score:.3f}")
    print(f"{statistics.median(seconds[5:]) * 1e3:.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
