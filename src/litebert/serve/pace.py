"""How long a batch will take: so much for any, and so much for its size, from the batches before
it.
"""

from __future__ import annotations

DECAY = 0.95
"""How much of what was measured before a batch counts after it."""
LEAST = 0.1
"""The least share of a mean batch's time that is ascribed to its size: fewer would be noise."""


class Pace:
    """A line through the sizes and times of batches, the newest of which count most (least
    squares).
    """

    def __init__(self) -> None:
        self._weight = self._sizes = self._times = self._squares = self._products = 0.0
        self.fixed, self.slope = 0.0, 1e-3
        """Seconds of any batch, and seconds for one more of its size."""

    def add(self, size: float, seconds: float, weight: float = 1.0) -> None:
        """Count a batch."""
        self._weight = DECAY * self._weight + weight
        self._sizes = DECAY * self._sizes + weight * size
        self._times = DECAY * self._times + weight * seconds
        self._squares = DECAY * self._squares + weight * size * size
        self._products = DECAY * self._products + weight * size * seconds
        mean, time = self._sizes / self._weight, self._times / self._weight
        spread = self._squares / self._weight - mean * mean
        slope = (
            (self._products / self._weight - mean * time) / spread
            if spread > 1e-3 * mean * mean
            else 0.0
        )
        self.slope = min(max(slope, LEAST * time / mean), time / mean)
        self.fixed = time - self.slope * mean

    def seconds(self, size: float) -> float:
        """Estimate the seconds of a batch of a size."""
        return self.fixed + self.slope * size

    def size(self, seconds: float) -> float:
        """Estimate the size of a batch that takes so many seconds; 0 if all batches take longer."""
        return max(0.0, seconds - self.fixed) / self.slope
