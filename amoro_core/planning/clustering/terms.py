"""What holds for all partitions of a table while it is planned."""

from amoro_core.planning.clustering.facts import ClusterFacts, ClusterRequest
from amoro_core.planning.clustering.grouping import MOST_OUTPUTS
from amoro_core.planning.clustering.kept import Layouts, Sealing
from amoro_core.planning.clustering.layouts import Resolved
from amoro_core.planning.clustering.properties import ClusteringConfig
from amoro_core.records import record


@record
class Terms:
    """What holds for all partitions of a table."""

    facts: ClusterFacts
    config: ClusteringConfig
    request: ClusterRequest
    resolved: Resolved
    layouts: Layouts

    @property
    def target(self) -> int:
        """Bytes of an output."""
        return self.facts.optimizing.target_size

    @property
    def sealing(self) -> Sealing:
        """When groups are sealed."""
        return Sealing(self.config.sealed_bytes(self.target), self.config.tier_fanout)

    @property
    def most_bytes(self) -> int:
        """Bytes of a group at most."""
        return min(self.config.max_group_bytes, self.config.max_plan_bytes, MOST_OUTPUTS * self.target)
