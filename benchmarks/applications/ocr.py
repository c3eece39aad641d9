"""rapidocr-onnxruntime reads a page that is drawn here: what it reads on standard output, milliseconds on standard error."""

import statistics
import sys
import time

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

page = Image.new("RGB", (640, 240), "white")
font = ImageFont.load_default(28)
for row, text in enumerate(
    ("Fused subgraphs run faster", "Total: 1,234.56 EUR", "Chapter 7 - The engine", "ISBN 978-0-262-03384-8")
):
    ImageDraw.Draw(page).text((20, 15 + row * 55), text, "black", font)
read = RapidOCR()
seconds = []
for _ in range(6):
    begun = time.perf_counter()
    found, _ = read(np.asarray(page))
    seconds.append(time.perf_counter() - begun)
for _, text, score in found:
    print(f"{float(score):.2f} {text}")
print(f"{statistics.median(seconds[1:]) * 1e3:.2f}", file=sys.stderr)
