"""Statistics of programs that took turns, for the scripts of `cargo xtask peers`."""

import math
import statistics


def interval(ratios):
    """Median, and the order statistics that contain it with a probability of at least 95 %, or with few turns all."""
    ordered, count = sorted(ratios), len(ratios)
    low = 0
    while low + 1 < count // 2 and 2 * sum(math.comb(count, n) for n in range(low + 2)) / 2**count <= 0.05:
        low += 1
    return statistics.median(ordered), ordered[low], ordered[count - 1 - low]
