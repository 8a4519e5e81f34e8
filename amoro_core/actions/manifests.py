"""Rewriting manifests: small ones are merged and entries sorted by partition, so that scans read few of them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from amoro_core.actions.action_api import (
    OPTIMIZING_ROLES,
    ActionDefaults,
    Plan,
    PlanningContext,
    Request,
    TriggerVerdict,
    staged_change,
    summary_of,
)
from amoro_core.documents.formatting import many
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import AnyTable, Role
from amoro_core.maintenance.manifests import SWITCH, ManifestConfig
from amoro_core.model.commits import ManifestCluster
from amoro_core.model.processes import FILES, Change, Figure, ProcessContext
from amoro_core.model.properties import parse_into

NAME = "rewrite-manifests"


class RewriteManifests(ActionDefaults):
    """The action that clusters manifests; no file and no row changes."""

    name = NAME
    configuration = ManifestConfig
    lane = FILES
    roles = OPTIMIZING_ROLES | {Role.CLUSTER}
    every = timedelta(days=1)
    switch = SWITCH
    needs_gc = False

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The manifests worth rewriting by the table's properties; on request, any gain suffices."""
        config = parse_into(ManifestConfig, situation.properties)
        if (why := table.skip_reason()) is not None or table.facts.snapshot_id is None:
            return TriggerVerdict(False, why or "the table has no snapshot"), None
        min_count = None if request.name else config.min_count
        clusters = table.manifest_clusters(min_count)
        if not clusters:
            return TriggerVerdict(False, "no manifest is worth rewriting"), None
        reason = "; ".join(manifest_cluster.reason for manifest_cluster in clusters)
        return self.planned(table, reason, {"min_count": min_count}, document=_document(clusters))

    def change(self, table: AnyTable, case: ProcessContext, now: datetime) -> Change:
        """Rewrites the manifests of the present head that are worth it."""
        failpoint("commit.before_intent")
        staged = table.stage_manifests(case.detail["min_count"], summary_of(case.process, "REWRITE_MANIFESTS"))
        failpoint("commit.after_stage")
        figures = (
            Figure("replaced_manifests", staged.replaced, "files"),
            Figure("created_manifests", staged.created, "files"),
            Figure("kept_manifests", staged.kept, "files"),
            Figure("entries", staged.entries, "files"),
        )
        words = f"rewrote {many(staged.replaced, 'manifest')} as {staged.created}"
        return staged_change(case, staged.commit, "; ".join((words, *staged.dropped)), figures, now)


def _document(clusters: Sequence[ManifestCluster]) -> dict[str, object]:
    """The preview; `rewritten_manifests_count` is Spark's name."""
    return {
        "rewritten_manifests_count": sum(len(manifest_cluster.paths) for manifest_cluster in clusters),
        "bytes": sum(manifest_cluster.size_bytes for manifest_cluster in clusters),
        "clusters": [
            {
                "content": manifest_cluster.content,
                "spec_id": manifest_cluster.spec_id,
                "manifests": len(manifest_cluster.paths),
                "entries": manifest_cluster.entries,
                "bytes": manifest_cluster.size_bytes,
                "reason": manifest_cluster.reason,
            }
            for manifest_cluster in clusters
        ],
    }
