"""HTTP out, and only here: libcurl, egress at the moment of connecting, caps and timeouts.

Owns everything between a request that is complete and the facts that came of it. What the facts mean is the domain's.
"""

from relay.sender.authorities import NoAuthorities
from relay.sender.limits import ResolverLimits, SendLimits
from relay.sender.sender import HttpSender

__all__ = ["HttpSender", "NoAuthorities", "ResolverLimits", "SendLimits"]
