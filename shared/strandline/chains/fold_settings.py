"""The settings with which a scope is folded."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict

from strandline.chains import quality
from strandline.chains.segmentation import SegmentationRules
from strandline.embeddings.similarity_thresholds import Thresholds
from strandline.tuning import Tuning


class FoldSettings(BaseModel):
    """The settings with which a scope's events are segmented, judged and merged. A change is stored
    as a new decision."""

    model_config = ConfigDict(frozen=True)

    space: str
    """The embedding space in which cosines are computed."""
    low: float
    high: float
    merge: float
    gap_minutes: float
    flush_events: int
    ahead_events: int = 0
    """The default applies to decisions made before this setting existed, when messages were judged
    at once."""
    merged_events: int
    vector_hours: float
    quality: quality.Mode

    @classmethod
    def from_tuning(cls, space: str, thresholds: Thresholds, tuning: Tuning) -> "FoldSettings":
        """Build the settings from a tenant's tuning, for one embedding space and its thresholds."""
        return cls(
            space=space,
            low=thresholds.low,
            high=thresholds.high,
            merge=thresholds.merge,
            gap_minutes=tuning.gap_minutes,
            flush_events=tuning.flush_events,
            ahead_events=tuning.ahead_events,
            merged_events=tuning.merged_events,
            vector_hours=tuning.vector_hours,
            quality=tuning.quality,
        )

    @property
    def segmentation_rules(self) -> SegmentationRules:
        """The part of the settings that segmentation uses."""
        gap = timedelta(minutes=self.gap_minutes)
        return SegmentationRules(self.low, self.high, gap, self.flush_events, self.ahead_events)
