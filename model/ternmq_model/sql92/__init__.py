"""SQL92 conditions on a message's properties: parsed once, evaluated for every message. Pure.

docs/howto/filter.md describes the language, with missing properties and properties that are no
numbers. A condition is never run as Python code.
"""

from ternmq_model.sql92.condition import Condition as Condition
from ternmq_model.sql92.condition import compile_condition as compile_condition
from ternmq_model.sql92.evaluation import Properties as Properties
from ternmq_model.sql92.parser import DEPTH_MAX as DEPTH_MAX
from ternmq_model.sql92.parser import NODES_MAX as NODES_MAX
