"""THE SPACE: every choice a person can make, as fields of frozen dataclasses. Nothing here imports
torch.

`pretraining` holds the space of pretraining, `encoder` that of networks, `distillation` that of
learning from a teacher, `finetuning` that of fine-tuning, `run` what both kinds of training share;
`amounts` reads `30m` and `5000 steps`; `ranges` checks numbers; `serialization` turns configs into
JSON and strictly back.
"""

from litebert.config.distillation import DistillConfig as DistillConfig
from litebert.config.distillation import TaskDistillConfig as TaskDistillConfig
from litebert.config.encoder import Activation as Activation
from litebert.config.encoder import EncoderConfig as EncoderConfig
from litebert.config.encoder import HeadActivation as HeadActivation
from litebert.config.encoder import Pooling as Pooling
from litebert.config.encoder import Sharing as Sharing
from litebert.config.finetuning import FinetuneConfig as FinetuneConfig
from litebert.config.pretraining import PAIR_FORMATS as PAIR_FORMATS
from litebert.config.pretraining import Config as Config
from litebert.config.pretraining import Format as Format
from litebert.config.pretraining import MaskingConfig as MaskingConfig
from litebert.config.pretraining import ReplacedTokenConfig as ReplacedTokenConfig
from litebert.config.pretraining import SequenceConfig as SequenceConfig
from litebert.config.pretraining import SpanBoundaryConfig as SpanBoundaryConfig
from litebert.config.pretraining import TableConfig as TableConfig
from litebert.config.pretraining import replace as replace
from litebert.config.run import LoopConfig as LoopConfig
from litebert.config.run import OptimizerConfig as OptimizerConfig
from litebert.config.run import ScheduleConfig as ScheduleConfig
from litebert.config.run import TrainConfig as TrainConfig
