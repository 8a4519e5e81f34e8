"""Files for Prometheus and Grafana: the rules of all conditions, a scrape job, and a board over the metrics."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from amoro_core.model.alert_rules import CONDITIONS, Condition, Unit

RULES, BOARD, SCRAPE = "amoro.rules.yml", "amoro-dashboard.json", "scrape.yml"

_FORMATS = {Unit.NUMBER: "", Unit.SHARE: " | humanizePercentage", Unit.SECONDS: " | humanizeDuration"}
#: The part of prometheus.yml that scrapes a coordinator.
SCRAPE_JOB = """\
# For prometheus.yml. The token is made with: amoro token create prometheus --role viewer --expires 365d -o name
scrape_configs:
  - job_name: amoro
    scrape_interval: 15s
    authorization: {credentials_file: /etc/prometheus/amoro.token}
    static_configs: [{targets: ["127.0.0.1:1630"]}]
"""


def rules() -> str:
    """The rules file: an alert for each condition."""
    head = "# Made from the list of conditions: amoro monitoring export DIR\ngroups:\n  - name: amoro\n    rules:\n"
    return head + "".join("".join(f"      {line}\n" for line in _rule(condition)) for condition in CONDITIONS)


def lasting(duration: timedelta) -> str:
    """The duration as Prometheus writes it: 10m."""
    return f"{int(duration.total_seconds()) // 60}m"


def _rule(condition: Condition) -> Iterator[str]:
    yield f"- alert: {condition.alert}"
    yield f"  expr: {json.dumps(condition.when.promql)}"
    if condition.lasts:
        yield f"  for: {lasting(condition.lasts)}"
    yield f"  labels: {{severity: {condition.severity}}}"
    yield "  annotations:"
    yield f"    summary: {json.dumps(_template(condition))}"
    yield f"    description: {json.dumps(f'{condition.meaning} {condition.remedy}')}"


def _template(condition: Condition) -> str:
    value = f"{{{{ $value{_FORMATS[condition.unit]} }}}}"
    return re.sub(
        r"\{(\w+)\}", lambda match: value if match[1] == "value" else f"{{{{ $labels.{match[1]} }}}}", condition.text
    )


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _SPAN = 24, 7, 8


@dataclass(frozen=True, slots=True)
class Graph:
    """A panel: what it shows, in which unit of Grafana, and its expressions with their legends."""

    title: str
    about: str
    lines: tuple[tuple[str, str], ...]  # expression, legend
    unit: str = "none"
    is_number: bool = False  # the last value alone


def _number(title: str, about: str, expression: str, unit: str = "none") -> Graph:
    return Graph(title, about, ((expression, ""),), unit, is_number=True)


def _graph(title: str, about: str, *lines: tuple[str, str], unit: str = "none") -> Graph:
    return Graph(title, about, lines, unit)


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}[$__rate_interval]))"


def _hourly(metric: str) -> str:
    return f"round(sum(increase({metric}[1h])))"


def _quantile(part: float, metric: str, by: str = "") -> tuple[str, str]:
    """The quantile of a histogram by that label, and its legend."""
    labels, legend = (f"le, {by}", f"{{{{{by}}}}}") if by else ("le", f"p{part * 100:g}")
    return f"histogram_quantile({part:g}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))", legend


#: Rows of the board, each with its panels.
ROWS: Mapping[str, tuple[Graph, ...]] = {
    "Overview": (
        _number(
            "Coordinators", "Coordinators that own their state directory. 0: nothing is optimized.", "sum(amoro_leader)"
        ),
        _number("Optimizer threads", "Threads of all groups.", "sum(amoro_optimizer_threads)"),
        _number(
            "Commits unknown",
            "Sent commits of unknown outcome.",
            'sum(amoro_active_processes{status="commit_unknown"})',
        ),
        _number(
            "Failed checks, 24 h",
            "Results that failed the check before the commit.",
            "round(sum(increase(amoro_failed_checks_total[24h])))",
        ),
        _number("Disk free", "Of the state directory.", "min(amoro_state_disk_free_ratio)", "percentunit"),
        _number("Up since", "The coordinator's start.", "time() - max(amoro_start_time_seconds)", "s"),
    ),
    "Tables": (
        _graph("Tables by status", "Registered tables.", ("sum by (status) (amoro_tables)", "{{status}}")),
        _graph(
            "Refused tables", "Refused tables, by reason.", ("sum by (reason) (amoro_refused_tables)", "{{reason}}")
        ),
        _graph(
            "Longest wait for a plan",
            "Of a pending table, by group.",
            ("max by (group) (amoro_oldest_pending_table_seconds)", "{{group}}"),
            unit="s",
        ),
    ),
    "Work": (
        _graph(
            "Open tasks and threads",
            "Waiting and running tasks, and threads, by group.",
            ("sum by (group, status) (amoro_open_tasks)", "{{group}} {{status}}"),
            ("sum by (group) (amoro_optimizer_threads)", "{{group}} threads"),
        ),
        _graph(
            "Active processes",
            "Active processes, by status.",
            ("sum by (status) (amoro_active_processes)", "{{status}}"),
        ),
        _graph(
            "Ended processes per hour",
            "By type and result.",
            ("sum by (type, result) (increase(amoro_processes_total[1h])) > 0", "{{type}} {{result}}"),
        ),
        _graph(
            "Data files",
            "Files that commits removed and added.",
            (_rate("amoro_data_files_removed_total"), "removed"),
            (_rate("amoro_data_files_added_total"), "added"),
            (_rate("amoro_delete_files_removed_total"), "deletes removed"),
            unit="cps",
        ),
        _graph(
            "Bytes rewritten", "Bytes of rewritten files.", (_rate("amoro_rewritten_bytes_total"), "bytes"), unit="Bps"
        ),
        _graph("Rows verified", "Rows with verified counts.", (_rate("amoro_verified_rows_total"), "rows"), unit="cps"),
    ),
    "Attempts and durations": (
        _graph(
            "Attempts of tasks",
            "By outcome: lost attempts ended with their optimizer.",
            (_rate("amoro_task_attempts_total", "outcome"), "{{outcome}}"),
            unit="cps",
        ),
        _graph(
            "Commits sent",
            "By outcome: a conflict is retried after another writer's commit.",
            (_rate("amoro_commit_attempts_total", "outcome"), "{{outcome}}"),
            unit="cps",
        ),
        _graph(
            "Lost optimizers and refused logins",
            "Optimizers that stopped sending heartbeats, and calls with a wrong password or token, within an hour.",
            (_hourly("amoro_optimizers_lost_total"), "lost"),
            (_hourly("amoro_login_failures_total"), "refused"),
        ),
        _graph(
            "Task time, p95", "From ack to result, by kind.", _quantile(0.95, "amoro_task_seconds", "kind"), unit="s"
        ),
        _graph(
            "Commit time, p95",
            "From validation to the catalog's answer, by type.",
            _quantile(0.95, "amoro_commit_seconds", "type"),
            unit="s",
        ),
        _graph(
            "Catalogs",
            "1 if the catalog answered the last request, else 0.",
            ("min by (catalog) (amoro_catalog_up)", "{{catalog}}"),
        ),
    ),
    "The coordinator": (
        _graph(
            "Calls, p99", "By method; polls wait for work.", _quantile(0.99, "amoro_rpc_seconds", "method"), unit="s"
        ),
        _graph("HTTP, p95", "By route.", _quantile(0.95, "amoro_http_seconds", "route"), unit="s"),
        _graph(
            "Write transactions, p99", "Of the state database.", _quantile(0.99, "amoro_transaction_seconds"), unit="s"
        ),
    ),
    "Maintenance": (
        _graph("Trash", "Bytes of files that wait to be deleted.", ("sum(amoro_trash_bytes)", "trash"), unit="bytes"),
        _graph(
            "Files marked for deletion and deleted",
            "By kind.",
            (_rate("amoro_files_condemned_total", "kind"), "{{kind}} marked"),
            (_rate("amoro_files_deleted_total", "kind"), "{{kind}} deleted"),
            unit="cps",
        ),
        _graph(
            "Held and paused",
            "Processes that wait for confirmation, and tables with a paused action.",
            ("sum(amoro_maintenance_held)", "held"),
            ("sum(amoro_maintenance_paused)", "paused"),
            ("sum(amoro_leases)", "leases"),
        ),
    ),
}


def board() -> str:
    """The board as Grafana imports it."""
    source = {"hide": 0, "label": "Data source", "multi": False, "name": "datasource", "query": "prometheus"}
    result = {
        "annotations": {},
        "description": "Tables, work and health of Amoro's coordinators.",
        "editable": False,
        "panels": _panels(),
        "refresh": "30s",
        "schemaVersion": 36,
        "tags": ["amoro", "iceberg"],
        "templating": {"list": [{**source, "includeAll": False, "skipUrlSync": False, "type": "datasource"}]},
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "title": "Amoro",
        "uid": "amoro",
    }
    return json.dumps(result, indent=2) + "\n"


def _panels() -> list[dict[str, Any]]:
    """A row of full width for each title, and below it its panels from left to right."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, graphs in ROWS.items():
        panels.append(
            {"type": "row", "title": title, "panels": [], "collapsed": False, "gridPos": _place(1, _WIDTH, 0, y)}
        )
        x, y, height = 0, y + 1, 0
        for graph in graphs:
            width = _WIDTH // len(graphs) if graph.is_number else _SPAN
            if x + width > _WIDTH:
                x, y, height = 0, y + height, 0
            own = _HEIGHT // 2 if graph.is_number else _HEIGHT
            panels.append({**_panel(graph), "gridPos": _place(own, width, x, y)})
            x, height = x + width, max(height, own)
        y += height
    return [{"id": number, **panel} for number, panel in enumerate(panels, 1)]


def _place(height: int, width: int, x: int, y: int) -> dict[str, int]:
    return {"h": height, "w": width, "x": x, "y": y}


def _panel(graph: Graph) -> dict[str, Any]:
    return {
        "type": "stat" if graph.is_number else "timeseries",
        "title": graph.title,
        "description": graph.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": graph.unit}, "overrides": []},
        "targets": [
            {
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend or "__auto",
                "refId": chr(ord("A") + number),
            }
            for number, (expression, legend) in enumerate(graph.lines)
        ],
    }
