"""silero-vad listens to tones in noise: the probability of speech on standard output, milliseconds on standard error."""

import statistics
import sys
import time

import numpy as np
import torch
from silero_vad import load_silero_vad

rate, rng = 16000, np.random.default_rng(0)
times = np.arange(4 * rate) / rate
voiced = sum(np.sin(2 * np.pi * 140 * k * times) / k for k in range(1, 12)) * (np.sin(2 * np.pi * 3 * times) > 0)
sound = torch.from_numpy((0.2 * voiced + 0.01 * rng.standard_normal(len(times))).astype(np.float32))
listen = load_silero_vad(onnx=True)
seconds = []
for begin in range(0, len(sound) - 512, 512):
    begun = time.perf_counter()
    probability = listen(sound[begin : begin + 512], rate).item()
    seconds.append(time.perf_counter() - begun)
    print(f"{probability:.3f}")
print(f"{statistics.median(seconds[5:]) * 1e3:.2f}", file=sys.stderr)
