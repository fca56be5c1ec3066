"""Trackers: where a team looks at its runs, beside the run folder.

Every tracker gets the stream of metrics that `metrics.jsonl` has, and at the end the config, the
scores, the report and the model. A tracker of your own is a subclass of `Tracker` with a registered
name: TRACKERS.add("mine", Mine)
"""

from litebert.train.trackers.group import TRACKED as TRACKED
from litebert.train.trackers.group import TrackerGroup as TrackerGroup
from litebert.train.trackers.group import keep_artifacts as keep_artifacts
from litebert.train.trackers.group import require_trackers as require_trackers
from litebert.train.trackers.tracker import TrackedRun as TrackedRun
from litebert.train.trackers.tracker import Tracker as Tracker
