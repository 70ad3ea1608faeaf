"""SQL92 conditions on a message's properties: read once, evaluated for every message. Pure.

What stands in a condition, and what it means where properties are missing or are no numbers, is
told in docs/howto/filter.md. Nothing of it is ever run as code.
"""

from ternmq_model.sql92.condition import Condition as Condition
from ternmq_model.sql92.condition import compile_condition as compile_condition
from ternmq_model.sql92.evaluation import Properties as Properties
from ternmq_model.sql92.parser import DEPTH_MAX as DEPTH_MAX
from ternmq_model.sql92.parser import NODES_MAX as NODES_MAX
