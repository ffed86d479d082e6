"""Stands in for `requests` in alfworld-download: the files of its three releases come from $DOWNLOADS."""

import os
from collections.abc import Iterator
from pathlib import Path


class Response:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.headers = {"Content-Length": str(path.stat().st_size)}

    def raise_for_status(self) -> None: ...

    def iter_content(self, chunk_size: int) -> Iterator[bytes]:
        yield self._path.read_bytes()


def get(url: str, **_: object) -> Response:
    return Response(Path(os.environ["DOWNLOADS"]) / url.rsplit("/", 1)[-1])
