"""The refusal of who tries too often to log in."""


class TooManyTries(Exception):
    """It was tried too often; nothing was looked at."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"Too many tries to log in: wait for {retry_after_s} s, then try again.")
        self.retry_after_s = retry_after_s
