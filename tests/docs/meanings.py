"""What settings, properties and states mean, in the words of the reference. A key that is missing here is an error."""

SETTINGS = {
    "host": "the address to listen on; beyond loopback only by TLS, or with `insecure`",
    "port": "the port; `0` picks a free one. A port that is taken is an error that names its holder",
    "metrics-port": "where [Prometheus](metrics.md) asks for `/metrics`, on 127.0.0.1; 0: nowhere",
    "insecure": "accept that nothing is encrypted beyond loopback, in a network you trust",
    "tls-certificate": "file in PEM with the certificate, and what leads to its authority; renewed files are taken by themselves",
    "tls-key": "file in PEM with its key, without a password",
    "tls-client-ca": "file in PEM; with it only clients that have a certificate of this authority are let in",
    "heartbeat-interval": "how often optimizers report; what an optimizer asks for itself wins",
    "heartbeat-timeout": "an optimizer that was silent for so long is lost, and its tasks are handed out again",
    "schedule-to-ack": "a task that nobody acknowledged in this time is handed out again",
    "start-to-close": "an attempt that runs longer is taken back",
    "groups": "optimizer groups that are there from the start",
    "allowed-classes": "classes, as `package.module.Class`, that a catalog or table may name as `py-io-impl` or as its REST "
    "`auth.impl`; no others are imported but pyiceberg's own. They serve metadata only",
    "strict-locations": "in object stores, too, files lie only below a catalog's warehouse and allowed prefixes; a table's own "
    "location counts for nothing. For one catalog: below `catalogs`, or as its property",
    "catalogs": "by name of a catalog, whoever configures it: `allow-locations`, a list of prefixes below which its tables' files "
    "may lie, too; and `strict-locations`",
    "history-keep": "how long ended processes are kept",
    "catalog-timeout": "how long a request to a catalog may take as a whole; 10 s of it until the connection stands",
    "blocker-timeout": "how long a blocker holds unless its taker says otherwise",
    "maintenance-threads": "tables of a catalog that are maintained at a time",
    "delete-rate": "files of a catalog that are deleted in a second, at most; half of it while the storage asks for less",
    "expire-snapshots.enabled": "whether snapshots are expired by the clock, on tables where that is on",
    "expire-snapshots.interval": "the pause between two runs on a table, give or take a tenth",
    "clean-orphan-files.enabled": "whether orphan files are condemned by the clock, on tables where that is on",
    "clean-orphan-files.interval": "the pause between two runs on a table, give or take a tenth",
    "clean-dangling-delete-files.enabled": "whether dangling delete files are removed from the table by the clock, on tables where that is on",
    "clean-dangling-delete-files.interval": "the pause between two runs on a table, give or take a tenth",
    "expire-data.enabled": "whether outdated rows are removed by the clock, on tables where that is on",
    "expire-data.interval": "the pause between two runs on a table, give or take a tenth",
    "auto-create-tags.enabled": "whether tags are made by the clock, on tables where that is on",
    "auto-create-tags.interval": "the least pause between two tags of a table",
    "rewrite-manifests.enabled": "whether manifests are clustered by the clock, on tables where that is on",
    "rewrite-manifests.interval": "the pause between two runs on a table, give or take a tenth",
    "compute-statistics.enabled": "whether statistics are computed by the clock, on tables where that is on",
    "compute-statistics.interval": "the pause between two runs on a table, give or take a tenth",
    "empty-trash.enabled": "whether condemned files that are due are deleted by the clock, on tables where that is on",
    "empty-trash.interval": "the pause between two runs on a table, give or take a tenth",
    "refresh-external-catalogs.interval": "how often catalogs are asked for their tables",
    "refresh-external-catalogs.thread-count": "catalogs asked at a time",
    "refresh-external-catalogs.queue-size": "tables found that wait for their first look; more wait for the next round",
}

#: What one may ask Prometheus, and what the answer means.
QUERIES = {
    "sum by (status) (amoro_tables) > 0": "where the tables stand",
    "sum by (group) (amoro_open_tasks) / (sum by (group) (amoro_optimizer_threads) > 0)": "open tasks for each thread of "
    "a group; what is above 1 waits",
    "round(sum(increase(amoro_data_files_removed_total[1d])) - sum(increase(amoro_data_files_added_total[1d])))": "by how "
    "many data files tables became smaller within a day",
    "sum by (type, result) (round(increase(amoro_processes_total[1d]))) > 0": "processes that ended within a day",
}

PROPERTIES = {
    "self-optimizing.enabled": "`true`: a coordinator optimizes it by itself; `false`: never, whoever asks. Without a word "
    "from anybody it is only observed",
    "self-optimizing.group": "the optimizer group that does the work",
    "self-optimizing.quota": "share of the group's threads while others want them too; above 1 a number of threads",
    "self-optimizing.allow-partial-commit": "commit what is done although other tasks failed or were cancelled",
    "self-optimizing.execute.num-retries": "how often a failed task is tried again",
    "self-optimizing.target-size": "the size that files should have",
    "self-optimizing.max-file-count": "data and delete files of one process",
    "self-optimizing.max-task-size-bytes": "can only raise the size of a task above the target size",
    "self-optimizing.fragment-ratio": "files up to target size ÷ this are fragments",
    "self-optimizing.min-target-size-ratio": "files up to target size × this, and no fragments, are undersized",
    "self-optimizing.minor.trigger.file-count": "so many fragments and equality deletes of a partition make a minor",
    "self-optimizing.minor.trigger.interval": "a minor at the latest so long after the last, where there is work; −1: never",
    "self-optimizing.major.trigger.duplicate-ratio": "share of a file's rows that deletes may cover before a major",
    "self-optimizing.full.trigger.interval": "a full rewrite so long after the last; −1: never",
    "self-optimizing.full.rewrite-all-files": "a full rewrite takes files of target size as well where that gains something",
    "tag.auto-create.enabled": "a tag is made for each period that has ended, without touching the table's files",
    "tag.auto-create.trigger.period": "`hourly`, `daily` or `monthly`",
    "tag.auto-create.trigger.offset.minutes": "a period counts as ended so much later",
    "tag.auto-create.trigger.max-delay.minutes": "no tag where the first snapshot after that moment came later than so; "
    "0: however late",
    "tag.auto-create.tag-format": "the tag's name as a date pattern of Java; `'tag-'yyyyMMddHH`, `'tag-'yyyyMMdd` or "
    "`'tag-'yyyyMM`, by the period, where none is set",
    "tag.auto-create.max-age-ms": "how long the tag is kept; −1: for ever",
    "table-expire.enabled": "snapshots that are past their time go, and the files that only they needed",
    "snapshot.keep.duration": "how long a snapshot stays, such as `12h` or `7d`; a bare number is minutes. Of this and "
    "Iceberg's own age the longer one counts; where neither is set 5 days",
    "history.expire.max-snapshot-age-ms": "the same, as Iceberg has it",
    "snapshot.keep.min-count": "how many snapshots of a branch stay whatever their age, at least 1; of this and Iceberg's "
    "own number the larger one counts",
    "history.expire.min-snapshots-to-keep": "the same, as Iceberg has it",
    "history.expire.max-ref-age-ms": "how long branches and tags stay that do not say it themselves; `main` always stays. "
    "Without it: for ever",
    "snapshot.keep.flink.checkpoint-retention": "how long the newest snapshot of a writer that commits exactly once (Flink, "
    "Spark Streaming, Kafka Connect) stays, with its chain to the branch's head",
    "maintenance.expire-snapshots.writer-keys": "keys in summaries of snapshots, with commas between them, by which further "
    "such writers find how far they had come",
    "maintenance.expire-snapshots.trash-keep": "how long files wait, once no snapshot needs them, until they are deleted; "
    "`0`: not at all",
    "maintenance.expire-snapshots.clean-metadata": "with the snapshots go schemas and partition specs that nothing needs",
    "maintenance.window": "the part of a day in which the clock may begin maintenance, such as `22:00-06:00`; always by default",
    "maintenance.undo.keep": "how long what expired data was based on stays, so that it can be undone",
    "maintenance.zone": "the time zone in which periods begin, such as `Europe/Berlin`",
    "maintenance.compute-statistics.enabled": "statistics of main's head are computed by the clock",
    "maintenance.compute-statistics.columns": "columns whose different values are counted, with commas between them; "
    "none named: all top-level ones of a primitive type",
    "maintenance.compute-statistics.partition": "statistics of partitions are computed, too",
    "maintenance.compute-statistics.min-change": "statistics are computed anew once this share of the rows has changed",
    "self-optimizing.filter": "Iceberg expression: only files that can hold such rows are planned",
    "self-optimizing.write-format": "`parquet`: rewritten files may be Parquet though `write.format.default` is Avro or ORC",
    "self-optimizing.min-plan-interval": "least time between two plans that nobody asked for",
    "self-optimizing.evaluation.fallback-interval": "set, a snapshot's totals decide whether files are looked at; they are "
    "after this time anyway",
    "self-optimizing.evaluation.file-size.mse-tolerance": "with the former: how far files may be from the target size",
    "self-optimizing.refresh-table.adaptive.max-interval-ms": "longest time between two looks at a table that rests; "
    "0: five minutes",
    "self-optimizing.refresh-table.adaptive.increase-step-ms": "by so much the time between two looks grows",
    "self-optimizing.rewrite.use-parquet-row-group-merge.enabled": "read and checked; without effect yet",
    "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes": "read and checked; without effect yet",
    "read.split.open-file-cost": "what opening a file weighs when tasks are packed",
    "write.parquet.compression-codec": "how pages are compressed: zstd, gzip, snappy, lz4, brotli, uncompressed",
    "write.parquet.compression-level": "the codec's level; else its own",
    "write.parquet.row-group-limit": "rows of a row group at most",
    "write.parquet.row-group-size-bytes": "bytes of a row group",
    "write.parquet.page-size-bytes": "bytes of a page",
    "write.parquet.page-row-limit": "rows of a page at most",
    "write.parquet.dict-size-bytes": "bytes of a column's dictionary at most",
    "write.parquet.bloom-filter-max-bytes": "bytes of a bloom filter at most",
    "write.parquet.bloom-filter-enabled.column.*": "whether the column gets bloom filters",
    "write.parquet.bloom-filter-fpp.column.*": "the share of false positives of the column's bloom filters",
    "write.metadata.metrics.default": "what manifests tell of a column: none, counts, truncate(n) or full; else truncate(16)",
    "write.metadata.metrics.column.*": "the same for one column",
    "write.metadata.metrics.max-inferred-column-defaults": "columns that are told of where nothing is said",
    "clean-dangling-delete-files.enabled": "delete files that apply to no data file are removed from the table",
    "data-expire.enabled": "data files with nothing but rows that are too old are removed from the table",
    "data-expire.field": "the top-level column that tells how old a row is: timestamp, date, long or string",
    "data-expire.level": "`partition`: a partition as a whole, once all its files have expired; `file`: each file by itself",
    "data-expire.retention-time": "how long rows are kept, with its unit: `30d`; a bare number is milliseconds",
    "data-expire.base-on-rule": "what that is counted back from: the last commit that brought data and is no maintenance, or "
    "`CURRENT_TIME`. Where no such commit is known nothing expires",
    "data-expire.datetime-string-pattern": "how a column of texts is written, in Java's letters yyyy, MM, dd, HH, mm, ss; a file "
    "with a text that is none stays. Read in `maintenance.zone`",
    "data-expire.datetime-number-format": "what a column of whole numbers counts since 1970: `TIMESTAMP_MS` or `TIMESTAMP_S`",
    "maintenance.expire-data.nulls": "`keep`: a file with rows without a time stays; `expire`: they go with its other rows",
    "maintenance.rewrite-manifests.enabled": "manifests are written anew, sorted by partition, where scans gain by it",
    "maintenance.rewrite-manifests.min-count": "so many small manifests of one content and spec are written anew at once",
    "clean-orphan-file.enabled": "files that lie where the table's files lie and that nothing names are removed",
    "clean-orphan-file.min-existing-time-minutes": "so many minutes old a file must be to count as an orphan; never less "
    "than 1440",
    "maintenance.clean-orphan-files.trash-keep": "how long orphan files wait until they are deleted; `0`: not at all",
    "commit.manifest-merge.enabled": "whether a commit merges small manifests",
    "commit.manifest.min-count-to-merge": "so many small manifests are merged",
    "commit.manifest.target-size-bytes": "the size that merged manifests should have",
}

STATES = {
    "task": {
        "planned": "waits for an optimizer",
        "scheduled": "handed to a thread, which has not acknowledged it",
        "acked": "a thread works on it",
        "success": "the result is kept until the commit",
        "failed": "the attempt failed; it is tried again, or the process ends",
        "canceled": "not wanted any more",
    },
    "process": {
        "running": "tasks are open",
        "committing": "nothing is open any more; the commit is made and sent",
        "clearing": "the work is done, and files that it leaves over are being removed",
        "held": "a breaker or the guard has stopped it: it waits until somebody confirms it, and is in nobody's way",
        "commit_unknown": "a commit was sent, and nobody knows whether it was applied: the table is asked until it says",
        "success": "everything is committed",
        "partial": "committed without some groups, that failed or were in conflict",
        "failed": "nothing was committed",
        "closed": "taken back before its commit began",
    },
    "table": {
        "idle": "nothing to do, or nobody wants it done",
        "pending": "there is work; it waits for its turn",
        "planning": "a plan is being made",
        "minor_optimizing": "fragments are rewritten, equality deletes converted",
        "major_optimizing": "and undersized files and files with many deletes rewritten",
        "full_optimizing": "whole partitions are rewritten",
        "committing": "the process commits, or its commit is unknown",
        "refused": "it has something that is not handled, by name; it ends when the reason is gone",
    },
}
