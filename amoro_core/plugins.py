"""What installed packages plug in, by entry point."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

import structlog

from amoro_core.scheduling.policy import POLICIES, Policy

#: An entry point of this group names a scheduling policy: a function as `amoro_core.scheduling.policy.Policy` says.
POLICY_GROUP = "amoro.scheduling_policies"

log = structlog.get_logger("amoro.plugins")


def scheduling_policies() -> Mapping[str, Policy]:
    """All policies by name: our own, which nobody replaces, and those of installed packages.

    One that can't be loaded is logged and left out.
    """
    found: dict[str, Policy] = {}
    for point in sorted(entry_points(group=POLICY_GROUP), key=lambda point: point.name):
        policy = _loaded(point)
        if policy is not None:
            found[point.name] = policy
    return {**POLICIES, **{name: policy for name, policy in found.items() if name not in POLICIES}}


def _loaded(point: EntryPoint) -> Policy | None:
    try:
        policy = point.load()
        if not callable(policy):
            raise TypeError(f"{point.value} is not a function")
    except Exception as error:
        log.exception("plugin.failed", group=POLICY_GROUP, name=point.name, why=str(error))
        return None
    log.info("plugin.loaded", group=POLICY_GROUP, name=point.name, value=point.value)
    found: Policy = policy
    return found
