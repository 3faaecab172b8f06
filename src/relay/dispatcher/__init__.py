"""B3 and B4: claim what is due, send it, judge the answer, record it, and keep house.

One delivery's way reads `Claimer` → `Launcher` → sender → `Launcher.landed` → `Recorder`; two pure decisions stand
between the effects: the request (`relay.transports`) and the judgement (`relay.domain.outcome`). Each loop is a module
named by its trade, and `Dispatcher` starts and ends them.
"""

from relay.dispatcher.claimer import ClaimTuning
from relay.dispatcher.directory import Directory
from relay.dispatcher.dispatcher import Dispatcher, Fleet, Stores, Tuning
from relay.dispatcher.flights import Flight

__all__ = ["ClaimTuning", "Directory", "Dispatcher", "Fleet", "Flight", "Stores", "Tuning"]
