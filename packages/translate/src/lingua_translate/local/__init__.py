"""A private scheduler, and optionally a private node, as child processes of this one.

    async with private_service(engines=(...), pairs=[("en", "es")]) as service:
        ... service.session_url, service.http_url, service.node_pid

For `lingua translate`, `lingua demo` and `lingua bench speech`. Nothing is shared with any other
deployment, and nothing is left behind. It knows no engine: the node gets the names as they are.
`own_service`, for `lingua up`, is the deployment of the settings instead.
"""

from lingua_translate.local.service import (
    PrivateService,
    ServiceAccess,
    ServiceFailed,
    own_service,
    private_service,
    unserved_pairs,
)

__all__ = [
    "PrivateService",
    "ServiceAccess",
    "ServiceFailed",
    "own_service",
    "private_service",
    "unserved_pairs",
]
