"""What spark-submit is told, and what is understood of the answers; a script stands for it, `yarn` and `kubectl`."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from amoro_core.containers.spark import SparkContainer, application_file, parse_spark, submit_command
from amoro_core.errors import AmoroError, InvalidArgument
from amoro_core.model.group_config import Launch, Liveness, Observation, Resource, ResourceState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ID = "01997a4c-0000-7000-8000-000000000001"
TOKEN = "amo_the-token-that-nobody-may-see"
YARN = {"spark-master": "yarn", "spark-deploy-mode": "cluster", "address": "here:1261"}
K8S = {
    "spark-master": "k8s://https://k:6443",
    "spark-deploy-mode": "cluster",
    "address": "here:1261",
    "token-file": "/secrets/enrolment.token",
    "spark-conf.spark.kubernetes.namespace": "lake",
}
#: Writes down what it is asked and says what the file `answer` beside it says, with the status in `status`.
FAKE = f"""#!{sys.executable}
import pathlib, sys
place = pathlib.Path(__file__).parent
with (place / "asked").open("a") as asked:
    asked.write(" ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
sys.stderr.write((place / "answer").read_text())
sys.exit(int((place / "status").read_text()))
"""


class Fake:
    """Programs on the path that answer what they are told to."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("spark-submit", "yarn", "kubectl"):
            (place / name).write_text(FAKE)
            (place / name).chmod(0o755)
        self.answers("")

    def answers(self, text: str, status: int = 0) -> None:
        (self.place / "answer").write_text(text)
        (self.place / "status").write_text(str(status))

    def asked(self) -> list[str]:
        return (self.place / "asked").read_text().splitlines()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place))
    return Fake(place)


@pytest.fixture
def container(tmp_path: Path, fake: Fake) -> SparkContainer:
    return SparkContainer(tmp_path, str(fake.place / "spark-submit"))


def launch(directory: Path, properties: dict[str, str]) -> Launch:
    token = directory / "enrolment.token"
    token.write_text(TOKEN)
    return Launch(
        ID,
        "g",
        properties.get("address", "127.0.0.1:1261"),
        token,
        2,
        256 * 1024**2,
        timedelta(seconds=10),
        tuple(properties.items()),
    )


def resource(handle: str) -> Resource:
    return Resource(ID, "g", "spark", ResourceState.STARTING, NOW, NOW, handle)


def arguments(token_file: object, address: str) -> list[str]:
    return [
        "optimizer",
        "run",
        f"--address={address}",
        "--group=g",
        "--threads=2",
        "--memory=256MB",
        "--heartbeat-interval=10000ms",
        f"--token-file={token_file}",
        f"--resource-id={ID}",
        "--backend=spark",
    ]


def test_in_client_mode_the_command_names_the_application_the_settings_and_the_optimizer(tmp_path: Path) -> None:
    jars = "/jars/hudi.jar,/jars/s3.jar"
    properties = {"spark-master": "spark://h:7077", "spark-conf.spark.executor.memory": "4g", "spark-jars": jars}
    wanted = launch(tmp_path, properties)
    command = submit_command(wanted, parse_spark(properties), "spark-submit")
    assert command == [
        "spark-submit",
        "--master=spark://h:7077",
        "--deploy-mode=client",
        "--conf",
        "spark.app.name=amoro-g",
        "--conf",
        "spark.executor.memory=4g",
        f"--jars={jars}",
        str(application_file()),
        *arguments(tmp_path / "enrolment.token", "127.0.0.1:1261"),
        f"--jars={jars}",
    ]
    assert application_file().is_file()
    assert TOKEN not in " ".join(command)


def test_yarn_gets_the_token_as_a_file_and_is_asked_by_its_own_command(
    tmp_path: Path, fake: Fake, container: SparkContainer
) -> None:
    fake.answers(
        "INFO Client: Submitting application application_1586176069782_0003 to ResourceManager\n"
        "INFO YarnClientImpl: Submitted application application_1586176069782_0003\n"
    )
    handle = container.start(launch(tmp_path, YARN))
    assert handle == "yarn|application_1586176069782_0003"
    fake.answers("Application Report :\n\tState : RUNNING\n\tFinal-State : UNDEFINED\n")
    assert container.status(resource(handle)) == Observation(Liveness.ALIVE)
    container.stop(resource(handle), by_force=True)
    fake.answers("one\ntwo password=abc\nthree\n")
    assert container.logs(resource(handle), 2) == ["two password=***", "three"]
    submitted, *others = fake.asked()
    words = submitted.split()
    assert words[:3] == ["spark-submit", "--master=yarn", "--deploy-mode=cluster"]
    assert "spark.yarn.submit.waitAppCompletion=false" in words
    assert f"--files={tmp_path}/enrolment.token#enrolment.token" in words
    assert words[-10:] == arguments("enrolment.token", "here:1261")
    assert TOKEN not in submitted
    assert others == [
        "yarn application -status application_1586176069782_0003",
        "yarn application -kill application_1586176069782_0003",
        "yarn logs -applicationId application_1586176069782_0003 -size -2048",
    ]


def test_kubernetes_is_asked_by_the_pod_that_we_named(tmp_path: Path, fake: Fake, container: SparkContainer) -> None:
    handle = container.start(launch(tmp_path, K8S))
    assert handle == f"k8s://https://k:6443|lake:amoro-{ID}"
    fake.answers("Application status (driver): \n\t pod name: amoro-x\n\t phase: Pending\n\t container status: N/A\n")
    assert container.status(resource(handle)).liveness is Liveness.ALIVE
    container.stop(resource(handle), by_force=False)
    fake.answers("one\ntwo token=abc\nthree\n")
    assert container.logs(resource(handle), 2) == ["two token=***", "three"]
    submitted, *others = fake.asked()
    assert f"spark.kubernetes.driver.pod.name=amoro-{ID}" in submitted
    assert submitted.split()[-10:] == arguments("/secrets/enrolment.token", "here:1261")
    assert others == [
        f"spark-submit --master=k8s://https://k:6443 --status lake:amoro-{ID}",
        f"spark-submit --master=k8s://https://k:6443 --kill lake:amoro-{ID}",
        f"kubectl logs --namespace=lake --tail=2 amoro-{ID}",
    ]


@pytest.mark.parametrize(
    ("handle", "said", "liveness", "detail"),
    [
        ("yarn|a", "\tState : ACCEPTED\n\tFinal-State : UNDEFINED\n", Liveness.ALIVE, ""),
        ("yarn|a", "\tState : FINISHED\n\tFinal-State : FAILED\n", Liveness.ENDED, "its application is finished"),
        ("yarn|a", "\tState : KILLED\n\tFinal-State : KILLED\n", Liveness.ENDED, "its application is killed"),
        ("yarn|a", "nothing of the kind", Liveness.UNKNOWN, ""),
        ("k8s://h|n:p", "\t phase: Failed\n", Liveness.ENDED, "its application is failed"),
        ("k8s://h|n:p", "\t phase: Succeeded\n", Liveness.ENDED, "its application is succeeded"),
        ("k8s://h|n:p", "Application not found.\n", Liveness.ENDED, "its pod is gone"),
    ],
)
def test_states_of_clusters_are_understood(
    fake: Fake, container: SparkContainer, handle: str, said: str, liveness: Liveness, detail: str
) -> None:
    fake.answers(said)
    assert container.status(resource(handle)) == Observation(liveness, detail)


def test_a_cluster_that_does_not_answer_is_no_end(fake: Fake, container: SparkContainer) -> None:
    fake.answers("connection refused\n", status=1)
    observed = container.status(resource("yarn|a"))
    assert observed.liveness is Liveness.UNKNOWN
    assert "ended with status 1: connection refused" in observed.detail
    with pytest.raises(AmoroError, match="connection refused"):
        container.stop(resource("yarn|a"), by_force=True)


def test_a_submission_that_fails_or_says_nothing_is_a_failed_start(
    tmp_path: Path, fake: Fake, container: SparkContainer
) -> None:
    fake.answers("no queue\npassword=abc\n", status=1)
    with pytest.raises(AmoroError, match=r"status 1: password=\*\*\*"):
        container.start(launch(tmp_path, YARN))
    fake.answers("fine\n")
    with pytest.raises(AmoroError, match="did not report what it started: fine"):
        container.start(launch(tmp_path, YARN))


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"spark-deploy-mode": "both"}, "spark-deploy-mode has the malformed value 'both'"),
        ({"spark-master": "spark://h:1", "spark-deploy-mode": "cluster"}, "no Python application in cluster mode"),
        ({"spark-master": "yarn", "spark-deploy-mode": "cluster"}, "where the coordinator is: address"),
        ({key: value for key, value in K8S.items() if key != "token-file"}, "token there: token-file"),
        ({"spark-conf.spark.hadoop.fs.s3a.secret.key": "x"}, "would be on a command line"),
    ],
)
def test_what_spark_submit_can_not_be_asked_is_refused_by_name(
    container: SparkContainer, properties: dict[str, str], match: str
) -> None:
    with pytest.raises(InvalidArgument, match=match):
        container.check(properties)
    mounted = "spark-conf.spark.kubernetes.driver.secrets.amoro"
    container.check({**K8S, "spark-conf.spark.executor.cores": "2", mounted: "/secrets"})
