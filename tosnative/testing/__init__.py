"""A TOS in your process, for tests: `with LocalTos(bucket="demo") as tos: ...`. Uses the standard library only."""

from tosnative.testing.address import LocalCredentials
from tosnative.testing.arrivals import RequestRecord
from tosnative.testing.faults import Action, LogNormal, Rule, Tail, Uniform
from tosnative.testing.local import Fault, LocalTos, ScriptedFaults
from tosnative.testing.messages import ServerOptions

__all__ = [
    "Action",
    "Fault",
    "LocalCredentials",
    "LocalTos",
    "LogNormal",
    "RequestRecord",
    "Rule",
    "ScriptedFaults",
    "ServerOptions",
    "Tail",
    "Uniform",
]
