"""Meanings of settings, properties and states in the reference pages. A missing key is an error."""

SETTINGS = {
    "host": "the address to listen on; beyond loopback only with TLS, or with `insecure`",
    "port": "the port; `0` picks a free one. A port in use is an error that names the process that holds it",
    "http-host": "the address of pages and REST; beyond loopback only with TLS, or with `insecure`",
    "mcp-writes": "whether `/mcp` offers [tools that write](../howto/mcp.md#let-it-act) to tokens of the role operator or above; false: it only reads",
    "http-port": "the port of pages and REST; `0`: neither is served. A port in use is an error that names the process that holds it",
    "http-hosts": "host names that browsers may use, besides `localhost`, loopback's addresses and `http-host`; any other "
    "name is answered with 421",
    "trusted-proxies": "addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` count",
    "insecure": "accept unencrypted connections beyond loopback, in a network you trust",
    "tls-certificate": "PEM file with the certificate and its chain; a renewed file is picked up without a restart",
    "tls-key": "PEM file with its key, without a password",
    "tls-client-ca": "PEM file of an authority; if set, only clients with a certificate it signed may connect",
    "oidc-issuer": "the issuer of an [OpenID provider](../howto/roles.md#log-in-by-an-openid-provider), as it writes itself; its users can "
    "log in to the pages. Needs `amoro[oidc]`, `oidc-client-id` and `oidc-roles`",
    "oidc-client-id": "the name of this coordinator at the provider",
    "oidc-client-secret": "reference to its secret: `env:NAME` or `file:/path`, never the secret itself; empty for a public client",
    "oidc-name-claim": "the claim that names users here and in the audit, after `oidc:`; only `sub` never changes and is never reassigned",
    "oidc-role-claim": "the claim of the ID token, a text or a list, whose values give roles; dots lead into objects",
    "oidc-roles": "which value gives which role: `VALUE=viewer`, `VALUE=operator`, `VALUE=operator PATTERN`, `VALUE=admin`. The first entry that "
    "matches one of a user's values counts; a user without one is refused. A changed map ends the sessions of the provider's users",
    "oidc-scopes": "the requested scopes; `openid` is always added",
    "heartbeat-interval": "how often optimizers send a heartbeat, unless an optimizer requests another interval",
    "heartbeat-timeout": "an optimizer that sent no heartbeat for this long is lost, and its tasks are scheduled again",
    "schedule-to-ack": "a scheduled task that is not acknowledged within this time is scheduled again",
    "start-to-close": "an attempt that runs longer is reset and scheduled again",
    "groups": "optimizer groups that are created at the start",
    "allowed-classes": "classes, as `package.module.Class`, that a catalog or table may name as `py-io-impl` or as its REST "
    "`auth.impl`; besides pyiceberg's own no others are imported. They are used for metadata only",
    "strict-locations": "in object stores, too, files may lie only below the catalog's warehouse and allowed prefixes; the table's own "
    "location is not trusted. For a single catalog: below `catalogs`, or as its property",
    "catalogs": "by catalog name, wherever the catalog is configured: `allow-locations`, a list of prefixes below which its tables' files "
    "may lie as well; and `strict-locations`",
    "listeners": "what [gets events](../howto/listeners.md): a list of `name`, `url`, `secret` (`env:NAME` or `file:/path`), `kinds`, `on` "
    "(a pattern of tables, as for roles) and `allow-private`",
    "table-series": "whether health, files and sizes of each table are kept over time: hourly for 7 days and daily for 90, about 25 kB a table "
    "at most",
    "history-keep": "how long ended processes are kept",
    "planning-memory": "memory for cached manifests of tables with 2,000 data files or more: the next refresh and commit read only new "
    "manifests; the least recently used are dropped first; `0`: no cache",
    "catalog-timeout": "time limit of a request to a catalog as a whole, at most 10 s of it for connecting",
    "blocker-timeout": "duration of a blocker, unless the request names another",
    "maintenance-threads": "tables of a catalog that are maintained at the same time",
    "delete-rate": "files deleted per second and catalog, at most; halved while the storage throttles",
    "expire-snapshots.enabled": "whether snapshots are expired on schedule, on tables for which the action is enabled",
    "expire-snapshots.interval": "the time between two runs on a table, ± 10 %",
    "clean-orphan-files.enabled": "whether orphan files are marked for deletion on schedule, on tables for which the action is enabled",
    "clean-orphan-files.interval": "the time between two runs on a table, ± 10 %",
    "clean-dangling-delete-files.enabled": "whether dangling delete files are removed from the table on schedule, on tables for which the action is enabled",
    "clean-dangling-delete-files.interval": "the time between two runs on a table, ± 10 %",
    "expire-data.enabled": "whether outdated rows are removed on schedule, on tables for which the action is enabled",
    "expire-data.interval": "the time between two runs on a table, ± 10 %",
    "auto-create-tags.enabled": "whether tags are created on schedule, on tables for which the action is enabled",
    "auto-create-tags.interval": "the least time between two runs on a table",
    "rewrite-manifests.enabled": "whether manifests are clustered on schedule, on tables for which the action is enabled",
    "rewrite-manifests.interval": "the time between two runs on a table, ± 10 %",
    "compute-statistics.enabled": "whether statistics are computed on schedule, on tables for which the action is enabled",
    "compute-statistics.interval": "the time between two runs on a table, ± 10 %",
    "empty-trash.enabled": "whether files in the trash that are due are deleted on schedule, on tables for which the action is enabled",
    "empty-trash.interval": "the time between two runs on a table, ± 10 %",
    "refresh-external-catalogs.interval": "how often the tables of catalogs are listed",
    "refresh-external-catalogs.thread-count": "catalogs that are listed at the same time",
    "refresh-external-catalogs.queue-size": "new tables that may wait for their first evaluation; more wait for the next round",
}

#: Queries for Prometheus, and the meaning of their results.
QUERIES = {
    "sum by (status) (amoro_tables) > 0": "tables by status",
    "sum by (group) (amoro_open_tasks) / (sum by (group) (amoro_optimizer_threads) > 0)": "open tasks per thread of a "
    "group; above 1 tasks wait",
    "round(sum(increase(amoro_data_files_removed_total[1d])) - sum(increase(amoro_data_files_added_total[1d])))": "net data "
    "files removed within a day",
    "sum by (type, result) (round(increase(amoro_processes_total[1d]))) > 0": "processes that ended within a day",
}

PROPERTIES = {
    "self-optimizing.enabled": "`true`: the coordinator optimizes the table automatically; `false`: never, not even on request. If "
    "neither is set anywhere the table is only observed",
    "self-optimizing.group": "the optimizer group that runs its tasks",
    "self-optimizing.quota": "share of the group's threads while other tables need them too; above 1: a number of threads",
    "self-optimizing.priority": "the table's class in groups whose policy is `priority` or `value`: 0 comes first, 9 last",
    "self-optimizing.allow-partial-commit": "commit the tasks that succeeded although others failed or were cancelled",
    "self-optimizing.execute.num-retries": "how often a failed task is tried again",
    "self-optimizing.target-size": "the size that files should have",
    "self-optimizing.max-file-count": "data and delete files of one process, at most",
    "self-optimizing.max-plan-bytes": "bytes that one process reads, at most; the rest is the next plan. A single task may exceed "
    "it; unset: no limit",
    "self-optimizing.max-task-size-bytes": "can only raise the size of a task above the target size",
    "self-optimizing.fragment-ratio": "files up to target size ÷ this are fragments",
    "self-optimizing.min-target-size-ratio": "files up to target size × this that are no fragments are undersized",
    "self-optimizing.minor.trigger.file-count": "number of fragments and equality deletes in a partition that triggers a minor",
    "self-optimizing.minor.trigger.interval": "time after the last minor at which one is triggered if there is work; −1: never",
    "self-optimizing.minor.trigger.commits": "number of commits of other writers since the last plan that triggers a minor where "
    "there is work; unset: never",
    "self-optimizing.minor.trigger.delete-bytes": "bytes of deletes in a partition that triggers a minor, which folds them; "
    "unset: never",
    "self-optimizing.major.trigger.duplicate-ratio": "share of a file's rows covered by deletes above which a major is triggered",
    "self-optimizing.full.trigger.interval": "time after the last full rewrite at which one is triggered; −1: never",
    "self-optimizing.full.rewrite-all-files": "a full rewrite also takes files of target size if that gains something",
    "self-optimizing.cluster.enabled": "cluster the table on schedule; requests by command don't need it",
    "self-optimizing.cluster.columns": "columns to cluster by, separated by commas, nested ones with dots; "
    "`auto`: those that queries filter by, from 100 scans in 7 d on; unset: the table's sort order",
    "self-optimizing.cluster.strategy": "`linear`, `zorder` or `hilbert`; unset: `linear` for one column, `hilbert` for two to four",
    "self-optimizing.cluster.partitions": "`all`, `recent:N` (the newest), `recent:N,skip:M` (except the M newest), "
    "`selected` by `partition-filter`, or `rolling:K` (one in K each hour)",
    "self-optimizing.cluster.partition-filter": "Iceberg expression that chooses whole partitions, with `partitions` `selected`",
    "self-optimizing.cluster.partition-order": "`newest` or `oldest` partitions first",
    "self-optimizing.cluster.quiet": "a partition is skipped until no other writer has written to it for this long",
    "self-optimizing.cluster.files": "`all`, or `small`: only files below the target size × `min-target-size-ratio`",
    "self-optimizing.cluster.group-by": "which files are clustered together: `overlap` of ranges of the first column, "
    "`key-range`, `time` of their commits, or `any`",
    "self-optimizing.cluster.max-group-bytes": "bytes of a group, at most",
    "self-optimizing.cluster.max-groups": "groups of one process, at most",
    "self-optimizing.cluster.max-plan-bytes": "bytes of one process, at most",
    "self-optimizing.cluster.min-bytes": "unclustered bytes of a partition below which nothing is due; unset: 4 × target size",
    "self-optimizing.cluster.trigger.depth-ratio": "due when a point query reads more than this many times the files of a perfect layout",
    "self-optimizing.cluster.trigger.commits": "due after this many commits of other writers, if anything is unclustered; unset: never",
    "self-optimizing.cluster.trigger.interval": "due this long after the last clustering, if anything is unclustered; unset: never",
    "self-optimizing.cluster.seal-bytes": "a group of this size is sealed: it is not rewritten for new files; unset: 32 × target size",
    "self-optimizing.cluster.tier-fanout": "number of sealed groups of one tier, with overlapping ranges, that are merged into one of the next; `0`: never",
    "self-optimizing.cluster.relayout": "cluster groups of an older layout again; otherwise they stay as they are",
    "self-optimizing.cluster.update-strategy": "if other writers delete rows of a group by position meanwhile: `give-way` (the group is dropped), "
    "`reject` (cooperating writers are refused), `carry-over` (the deletes are carried over to the outputs)",
    "self-optimizing.cluster.carry-over.max-rows": "deleted rows of a group that are looked up in its outputs, at most; with more the group is dropped",
    "self-optimizing.cluster.partial-progress": "commit groups as they finish; `false`: one commit for the whole plan",
    "self-optimizing.cluster.partial-progress.max-commits": "commits of one process, at most",
    "self-optimizing.cluster.max-payback": "time within which the reads saved must pay for the clustering, if there are scan statistics",
    "self-optimizing.cluster.mode": "`async`: plans are started at once; `scheduled`: they wait for `amoro process start`",
    "self-optimizing.cluster.plan-ttl": "a stored plan that was not started within this time is closed",
    "self-optimizing.cluster.register-sort-order": "add a linear layout to the table's sort orders, not as the default",
    "tag.auto-create.enabled": "create a tag for each period that has ended; no file is changed",
    "tag.auto-create.trigger.period": "`hourly`, `daily` or `monthly`",
    "tag.auto-create.trigger.offset.minutes": "delay after which a period counts as ended",
    "tag.auto-create.trigger.max-delay.minutes": "no tag if the first snapshot after that moment came later than this; "
    "0: no limit",
    "tag.auto-create.tag-format": "the tag's name as a Java date pattern; unset: `'tag-'yyyyMMddHH`, `'tag-'yyyyMMdd` or "
    "`'tag-'yyyyMM`, by the period",
    "tag.auto-create.max-age-ms": "how long the tag is kept; −1: forever",
    "table-expire.enabled": "expire old snapshots, and delete the files that only they need",
    "snapshot.keep.duration": "how long snapshots are kept, such as `12h` or `7d`; a bare number is minutes. The longer of this and "
    "Iceberg's own age counts; if neither is set, 5 days",
    "history.expire.max-snapshot-age-ms": "the same, by Iceberg's property",
    "snapshot.keep.min-count": "how many snapshots of a branch are kept whatever their age, at least 1; the larger of this and "
    "Iceberg's own number counts",
    "history.expire.min-snapshots-to-keep": "the same, by Iceberg's property",
    "history.expire.max-ref-age-ms": "how long branches and tags without an age of their own are kept; `main` is always kept. "
    "Unset: forever",
    "snapshot.keep.flink.checkpoint-retention": "how long the newest snapshot of an exactly-once writer (Flink, "
    "Spark Streaming, Kafka Connect) is kept, with the chain from the branch's head",
    "maintenance.expire-snapshots.writer-keys": "summary keys, separated by commas, by which further "
    "exactly-once writers recognize their last commit",
    "maintenance.expire-snapshots.trash-keep": "how long files that no snapshot needs are kept before they are deleted; "
    "`0`: deleted at once",
    "maintenance.expire-snapshots.clean-metadata": "also remove schemas and partition specs that are no longer used",
    "maintenance.window": "time of day in which scheduled maintenance may start, such as `22:00-06:00`; unset: always",
    "maintenance.undo.keep": "how long the base snapshot of data expiry is kept, so that it can be undone",
    "maintenance.zone": "the time zone of periods, windows and dates, such as `Europe/Berlin`",
    "maintenance.compute-statistics.enabled": "compute statistics of main's head on schedule",
    "maintenance.compute-statistics.columns": "columns whose distinct values are counted, separated by commas; "
    "unset: all top-level columns of a primitive type",
    "maintenance.compute-statistics.partition": "also compute partition statistics",
    "maintenance.compute-statistics.min-change": "share of the rows that must have changed before statistics are computed again",
    "self-optimizing.filter": "Iceberg expression: only files that may contain matching rows are planned",
    "self-optimizing.write-format": "`parquet`: rewrite to Parquet although `write.format.default` is Avro or ORC",
    "self-optimizing.window": "time of day in which plans are made without a request, such as `22:00-06:00`, in `maintenance.zone`; unset: always",
    "self-optimizing.min-plan-interval": "least time between two automatic plans",
    "self-optimizing.evaluation.fallback-interval": "if set, a snapshot's totals decide whether files are evaluated; after this "
    "time they are evaluated anyway",
    "self-optimizing.evaluation.file-size.mse-tolerance": "with the property above: how far file sizes may deviate from the target size",
    "self-optimizing.refresh-table.adaptive.max-interval-ms": "longest time between two refreshes of an idle table; "
    "0: five minutes",
    "self-optimizing.refresh-table.adaptive.increase-step-ms": "by how much the time between two refreshes grows",
    "self-optimizing.rewrite.use-parquet-row-group-merge.enabled": "whether row groups of Parquet files without deleted rows are copied byte for byte instead of decoded and encoded, if the files match the current schema and settings. Unset: minor copies, major and full encode small row groups. `true`: every type copies large row groups and encodes small ones. `false`: nothing is copied",
    "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes": "row groups are small if they are below this size on average and have fewer than half of the rows of `write.parquet.row-group-limit`",
    "self-optimizing.rewrite.copy.max-row-groups": "copied row groups of an output, at most; further ones are encoded",
    "self-optimizing.rebase.enabled": "rows that other writers delete by position during a rewrite are deleted in its outputs, too; `false`: the outputs are dropped",
    "self-optimizing.rebase.max-hidden-ratio": "share of an output that may come from an input that is gone at the commit; above that its task is dropped",
    "self-optimizing.conflict-granularity": "when `amoro table block --where` refuses a writer because of a process that runs: `file`: never, since "
    "commits compare files; `partition`: while it rewrites one of these partitions; `table`: while any runs",
    "self-optimizing.polaris-rollback": "in a Polaris catalog: commits of optimizing and clustering may be rolled back by the server for a writer that would conflict with them; needs Polaris's `polaris.config.rollback.compaction.on-conflicts.enabled`",
    "self-optimizing.commit.timeout": "how long a commit is retried after conflicts with faster writers, in ms",
    "self-optimizing.major.trigger.coarse-interval": "time after the last major or full in a partition at which major encodes files of target size with small row groups that minor copied. `-1`: until major or full runs for another reason",
    "self-optimizing.rewrite.copy.verify": "whether pages are compared with their checksums, indexes and footers before they are copied",
    "read.split.open-file-cost": "the cost of opening a file when tasks are packed",
    "write.parquet.compression-codec": "how pages are compressed: zstd, gzip, snappy, lz4, brotli, uncompressed",
    "write.parquet.compression-level": "the codec's level; unset: the codec's own; with zstd 3, and 1 for columns that do not become larger by it",
    "write.parquet.row-group-limit": "rows of a row group, at most",
    "write.parquet.row-group-size-bytes": "bytes of a row group",
    "write.parquet.page-size-bytes": "bytes of a page",
    "write.parquet.page-row-limit": "rows of a page, at most",
    "write.parquet.dict-size-bytes": "bytes of a column's dictionary, at most",
    "write.parquet.bloom-filter-max-bytes": "bytes of a bloom filter, at most",
    "write.parquet.bloom-filter-enabled.column.*": "whether the column gets bloom filters",
    "write.parquet.bloom-filter-fpp.column.*": "the share of false positives of the column's bloom filters",
    "write.metadata.metrics.default": "metrics of a column in manifests: none, counts, truncate(n) or full; unset: truncate(16)",
    "write.metadata.metrics.column.*": "the same for one column",
    "write.metadata.metrics.max-inferred-column-defaults": "number of columns that get metrics by default",
    "table-trash.enabled": "`true`: files marked for deletion that are due are moved to a folder `.trash`, and deleted from there later; on local "
    "file systems and HDFS only",
    "table-trash.custom-root-location": "the folder is `CATALOG/NAMESPACE/TABLE/.trash` below this location, in the storage of the table; "
    "unset: in the table's location",
    "table-trash.keep.days": "days from the move until a file is deleted from the folder",
    "table-trash.file-pattern": "a regular expression (RE2): files whose whole path matches are moved, others are deleted",
    "clean-dangling-delete-files.enabled": "remove delete files that apply to no data file",
    "data-expire.enabled": "remove data files whose rows are all too old",
    "data-expire.field": "the top-level column with the time of a row: timestamp, date, long or string",
    "data-expire.level": "`partition`: whole partitions, once all their files have expired; `file`: each file on its own",
    "data-expire.retention-time": "how long rows are kept, with a unit: `30d`; a bare number is milliseconds",
    "data-expire.base-on-rule": "where the retention time is counted from: the last commit that added data and is not maintenance, or "
    "`CURRENT_TIME`. If no such commit is known nothing expires",
    "data-expire.datetime-string-pattern": "the date pattern of a string column, in Java's letters yyyy, MM, dd, HH, mm, ss, in "
    "`maintenance.zone`; a file with a value that does not match is kept",
    "data-expire.datetime-number-format": "the unit of a long column, counted from 1970: `TIMESTAMP_MS` or `TIMESTAMP_S`",
    "maintenance.expire-data.nulls": "`keep`: a file with nulls in the column is kept; `expire`: it expires with its other rows",
    "maintenance.rewrite-manifests.enabled": "rewrite manifests, sorted by partition, if scans gain from it",
    "maintenance.rewrite-manifests.min-count": "number of small manifests of one content and spec that triggers a rewrite",
    "clean-orphan-file.enabled": "remove files in the table's locations that no metadata refers to",
    "clean-orphan-file.min-existing-time-minutes": "least age of an orphan file, in minutes; never less than 1440",
    "maintenance.clean-orphan-files.trash-keep": "how long orphan files are kept before they are deleted; `0`: deleted at once",
    "table-service.enabled": "whether services are done; without it the table is only observed",
    "table-service.compact.delta-commits": "Hudi: number of delta commits since the last compaction from which one is due",
    "table-service.compact.interval": "Paimon: age of level 0 from which it is compacted, however few its files",
    "table-service.expire.snapshots": "Paimon: number of snapshots beyond what the table keeps from which they are expired",
    "table-service.local-files": "Paimon: whether tables on a local file system are serviced, where a commit can replace another one",
    "table-service.io-bound": "bytes that one plan of ours reads and writes, at most",
    "table-service.cluster.columns": "Hudi: columns by which clustering orders rows, separated by commas; empty: none is due",
    "table-service.cluster.commits": "Hudi: number of commits since the last clustering from which one is due",
    "table-service.clean.commits": "Hudi: number of commits that stay readable; with more since the last cleaning one is due",
    "commit.manifest-merge.enabled": "whether a commit merges small manifests",
    "commit.manifest.min-count-to-merge": "number of small manifests from which they are merged",
    "commit.manifest.target-size-bytes": "target size of merged manifests",
    "self-optimizing.commit.manifest-merge-budget": "how long merging manifests may take in a commit, at 0.3 ms an entry; longer merges are left "
    "to `rewrite-manifests`; `0s`: no merges",
}

STATES = {
    "task": {
        "planned": "waiting for an optimizer",
        "scheduled": "given to an optimizer thread that has not acknowledged it yet",
        "acked": "an optimizer thread is executing it",
        "success": "the result is kept until the commit",
        "failed": "the attempt failed; it is tried again, or the process ends",
        "canceled": "no longer needed",
    },
    "process": {
        "running": "tasks are open",
        "committing": "no task is open; the commit is prepared and sent",
        "clearing": "the work is done; leftover files are being removed",
        "requested": "planned and stored, waiting to be started by command or on schedule; it holds no lane, and its files "
        "are in no other plan",
        "held": "stopped by a breaker or the guard until it is confirmed; it holds no lane",
        "commit_unknown": "a commit was sent and its outcome is unknown: the table is checked until it shows the outcome",
        "success": "everything is committed",
        "partial": "committed without some groups, which failed or were in conflict",
        "failed": "nothing was committed",
        "closed": "cancelled before its commit began",
    },
    "table": {
        "idle": "nothing is due, it is not enabled, or it failed and waits: its state says which",
        "pending": "the table has work and waits to be planned",
        "planning": "the planner computes a plan",
        "minor_optimizing": "fragments are rewritten, equality deletes converted",
        "major_optimizing": "undersized files and files with many deletes are rewritten as well",
        "full_optimizing": "whole partitions are rewritten",
        "committing": "the process commits, or its commit is unknown",
        "refused": "the table has an unsupported feature, named by the reason; it is optimized again once the feature is gone",
    },
}
