"""Numbers, lines and spans: everything that Relay tells about itself, made from what happens in it.

Owns the names of metrics (`names`), how several workers keep and show one set of numbers (`layout`, `slots`,
`roster`, `registry`, `exposition`), what each happening counts (`counting`), log lines (`lines`, `logs`, `writing`,
`redaction`) and their words (`glossary`), and spans (`spans`, `otlp`). It leaves to the loops what happens, and to the
HTTP rooms serving it. Invariant: a label is a member of a closed enum or a consumer's name; neither a line nor a span
holds a credential; and nothing here makes whoever tells something wait.
"""

from relay.metrics.names import reference
from relay.metrics.registry import Metrics, bury, expose
from relay.metrics.slots import Slot, prepare

__all__ = ["Metrics", "Slot", "bury", "expose", "prepare", "reference"]
