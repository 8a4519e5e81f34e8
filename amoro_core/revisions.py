"""Which subjects have changed: a number for each that grows with its changes."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

#: Single subjects whose numbers are remembered. A forgotten one counts as changed when the last of these was forgotten.
MOST_REMEMBERED = 20_000

#: A topic, such as "processes", and the id of the one that changed.
Subject = tuple[str, str]


class Revisions:
    """Revisions of topics and of the single subjects within them; any thread may note and ask.

    Numbers grow over all subjects alike. They begin at `start`: give a later one after a restart, so that a number
    from before is never met again.
    """

    def __init__(self, start: int = 0, most: int = MOST_REMEMBERED) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._latest = self._forgotten = start
        self._topics: dict[str, int] = {}
        self._subjects: OrderedDict[Subject, int] = OrderedDict()

    def note(self, changed: Iterable[Subject]) -> None:
        """These have changed, and so have their topics."""
        with self._lock:
            for subject in changed:
                self._latest += 1
                self._topics[subject[0]] = self._latest
                self._subjects[subject] = self._latest
                self._subjects.move_to_end(subject)
            while len(self._subjects) > self._most:
                self._forgotten = max(self._forgotten, self._subjects.popitem(last=False)[1])

    @property
    def latest(self) -> int:
        """The greatest revision of all subjects."""
        with self._lock:
            return self._latest

    def of(self, topic: str, subject: str = "") -> int:
        """The revision of a subject, or of the topic as a whole. It may grow without a change, never the reverse."""
        with self._lock:
            if not subject:
                return self._topics.get(topic, self._forgotten)
            return self._subjects.get((topic, subject), self._forgotten)
