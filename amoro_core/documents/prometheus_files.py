"""Files for Prometheus: the rules of all conditions, and a job that scrapes a coordinator."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta

from amoro_core.model.alert_rules import CONDITIONS, Condition, Unit

RULES, BOARD, SCRAPE = "amoro.rules.yml", "amoro-dashboard.json", "scrape.yml"

_FORMATS = {Unit.NUMBER: "", Unit.SHARE: " | humanizePercentage", Unit.SECONDS: " | humanizeDuration"}
_SCRAPE = """\
# For prometheus.yml. The token is made with: amoro token create prometheus --role viewer -o name
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


def scrape() -> str:
    """The part of prometheus.yml that scrapes a coordinator."""
    return _SCRAPE


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
        r"\{(\w+)\}",
        lambda found: value if found[1] == "value" else f"{{{{ $labels.{found[1]} }}}}",
        condition.text,
    )
