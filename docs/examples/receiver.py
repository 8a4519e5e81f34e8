"""Takes events of Amoro, verifies who signed them, and prints each once."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

SEEN: set[str] = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            event = Webhook(os.environ["LISTENER_SECRET"]).verify(body, dict(self.headers))
        except WebhookVerificationError:
            return self.send_error(401)
        self.take(event)
        self.send_response_only(204)
        return self.end_headers()

    def take(self, event: dict[str, Any]) -> None:
        if event["id"] not in SEEN:  # at least once: it may come again
            print(event["time"], event["type"], event.get("subject", "-"), event["data"]["text"], flush=True)
            SEEN.add(event["id"])


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8080), Receiver).serve_forever()
