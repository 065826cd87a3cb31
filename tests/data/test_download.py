"""Downloads are resumed, verified and unpacked, or refused in one line."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mala_asr.data import download
from mala_asr.data.download import DownloadError, download_corpus

SPLIT, OTHER = "dev-clean-2", "train-clean-5"
AUDIO = bytes(range(256)) * 400


def archive(members: dict[str, bytes | None]) -> bytes:
    """A tar.gz; a member without content is a link to /etc/passwd."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=0) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content or b""))
    return stream.getvalue()


class Server(ThreadingHTTPServer):
    """OpenSLR in small, with the troubles that a test asks for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.ranges = True
        self.cuts: list[int] = []  # bytes sent before each of the next cuts
        self.errors: list[int] = []  # status of each of the next answers
        for split in (SPLIT, OTHER):
            self.publish(split, archive(members(split)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/resources"

    def publish(self, split: str, content: bytes) -> None:
        self.files[f"{split}.tar.gz"] = content
        self.files["md5sum.txt"] = "".join(
            f"{hashlib.md5(data).hexdigest()}  ./{name}\n"
            for name, data in self.files.items()
            if name != "md5sum.txt"
        ).encode()

    def ranges_asked(self) -> list[str | None]:
        return [asked for path, asked in self.requests if "tar.gz" in path]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.requests.append((self.path, asked))
        content = self.server.files.get(Path(self.path).name)
        if content is None or not self.path.startswith("/resources/31/"):
            return self.send_error(404)
        large = self.path.endswith(".tar.gz")
        if large and self.server.errors:
            return self.send_error(self.server.errors.pop(0))
        start = 0
        if asked and self.server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = len(content)
        if large and self.server.cuts:
            stop = start + self.server.cuts.pop(0)
        self.wfile.write(content[start:stop])

    def log_message(self, *_: object) -> None:
        pass


def members(split: str) -> dict[str, bytes | None]:
    return {
        f"LibriSpeech/{split}/1/2/1-2-0000.flac": AUDIO,
        f"LibriSpeech/{split}/1/2/1-2.trans.txt": b"1-2-0000 GO ON\n",
        "LibriSpeech/README.TXT": b"read me",
    }


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """The pauses between attempts, which no test waits for."""
    pauses: list[float] = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    return pauses


def fetch(server: Server, dest: Path, splits=(SPLIT,), **options) -> Path:
    return download_corpus(
        "mini-librispeech", splits, dest, base_url=server.url, **options
    )


def assert_complete(root: Path, split: str = SPLIT) -> None:
    files = {
        str(path.relative_to(root.parent)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and (split in path.parts or path.parent == root)
    }
    assert files == members(split)


def rest(dest: Path) -> list[str]:
    return sorted(p.name for p in dest.iterdir() if p.name != "LibriSpeech")


def test_all_splits_come_whole_and_nothing_is_left_over(server, tmp_path):
    root = fetch(server, tmp_path, splits=None)
    assert root == tmp_path / "LibriSpeech"
    assert_complete(root, SPLIT)
    assert_complete(root, OTHER)
    assert rest(tmp_path) == []


def test_only_the_splits_asked_for_come(server, tmp_path):
    root = fetch(server, tmp_path)
    assert not (root / OTHER).exists()
    assert not any(OTHER in path for path, _ in server.requests)


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    root = fetch(server, tmp_path)
    (root / SPLIT / "mine.txt").write_text("kept")
    asked = len(server.requests)
    fetch(server, tmp_path)
    assert len(server.requests) == asked
    assert (root / SPLIT / "mine.txt").read_text() == "kept"


def test_archives_can_be_kept_and_are_used_again(server, tmp_path):
    fetch(server, tmp_path, keep_archives=True)
    kept = tmp_path / f"{SPLIT}.tar.gz"
    assert kept.read_bytes() == server.files[kept.name]
    (tmp_path / "LibriSpeech").rename(tmp_path / "gone")
    server.requests.clear()
    assert_complete(fetch(server, tmp_path))
    assert server.ranges_asked() == []


def test_a_cut_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.cuts = [30000, 40000]
    assert_complete(fetch(server, tmp_path))
    assert server.ranges_asked() == [None, "bytes=30000-", "bytes=70000-"]


def test_a_later_run_goes_on(server, tmp_path, waits):
    server.cuts = [5000] + [0] * 10
    with pytest.raises(DownloadError, match="run this again to go on"):
        fetch(server, tmp_path)
    assert (tmp_path / f"{SPLIT}.tar.gz.part").stat().st_size == 5000
    assert waits == sorted(waits) and waits[-1] > 2  # ever more patient
    server.cuts = []
    server.requests.clear()
    assert_complete(fetch(server, tmp_path))
    assert server.ranges_asked() == ["bytes=5000-"]


def test_a_server_without_ranges_sends_it_all_again(server, tmp_path):
    server.ranges = False
    server.cuts = [30000]
    assert_complete(fetch(server, tmp_path))
    assert server.ranges_asked() == [None, "bytes=30000-"]


def test_a_part_that_is_whole_already_is_used(server, tmp_path):
    part = tmp_path / f"{SPLIT}.tar.gz.part"
    part.write_bytes(server.files[f"{SPLIT}.tar.gz"])
    assert_complete(fetch(server, tmp_path))
    assert len(server.ranges_asked()) == 1


@pytest.mark.parametrize("size", [1000, 10_000_000])
def test_a_part_of_another_file_is_thrown_away(server, tmp_path, size):
    (tmp_path / f"{SPLIT}.tar.gz.part").write_bytes(b"x" * size)
    assert_complete(fetch(server, tmp_path))
    assert server.ranges_asked() == [f"bytes={size}-", None]


def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path):
    name = f"{SPLIT}.tar.gz"
    server.files[name] = server.files[name][:-1] + b"!"
    with pytest.raises(DownloadError, match=f"{name} has another MD5"):
        fetch(server, tmp_path)
    assert rest(tmp_path) == []
    assert not (tmp_path / "LibriSpeech" / SPLIT).exists()


def test_a_kept_archive_with_a_wrong_checksum_is_not_touched(server, tmp_path):
    kept = tmp_path / f"{SPLIT}.tar.gz"
    kept.write_bytes(b"someone's own")
    with pytest.raises(DownloadError, match="move it away"):
        fetch(server, tmp_path)
    assert kept.read_bytes() == b"someone's own"


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.errors = [503, 500]
    assert_complete(fetch(server, tmp_path))


def test_a_file_that_is_not_there_is_named_at_once(server, tmp_path, waits):
    del server.files[f"{SPLIT}.tar.gz"]
    with pytest.raises(DownloadError, match=f"{SPLIT}.tar.gz .*404"):
        fetch(server, tmp_path)
    assert waits == []


def test_a_list_without_the_file_is_refused(server, tmp_path):
    server.files["md5sum.txt"] = b"0123  other.tar.gz\n"
    with pytest.raises(DownloadError, match=f"no checksum of {SPLIT}.tar.gz"):
        fetch(server, tmp_path)
    assert server.ranges_asked() == []


def test_no_server_is_one_line(tmp_path, server):
    server.server_close()
    with pytest.raises(DownloadError, match="md5sum.txt") as caught:
        fetch(server, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["mirror", "http://[", "nothing://x"])
def test_what_is_no_address_is_one_line(tmp_path, url):
    with pytest.raises(DownloadError, match="try another --base-url"):
        download_corpus("mini-librispeech", None, tmp_path, base_url=url)


@pytest.mark.parametrize(
    "members",
    [
        {"LibriSpeech/../../evil.txt": b"x"},
        {"/tmp/evil.txt": b"x"},
        {f"LibriSpeech/{SPLIT}/link": None},
    ],
)
def test_an_archive_that_would_leave_its_folder_is_refused(
    server, tmp_path, members
):
    server.publish(SPLIT, archive(members))
    dest = tmp_path / "inner" / "dest"
    with pytest.raises(DownloadError, match="does not belong in a corpus"):
        fetch(server, dest)
    assert not (dest / "LibriSpeech" / SPLIT).exists()
    assert not list(tmp_path.rglob("evil.txt"))
    assert rest(dest) == [f"{SPLIT}.tar.gz"]  # no half-unpacked folder


@pytest.mark.parametrize(
    "content, fault",
    [
        (b"no archive", "not a tar.gz"),
        (archive(members(SPLIT))[:50000], "not a tar.gz"),
        (archive(members("dev-clean")), f"holds no LibriSpeech/{SPLIT}"),
    ],
)
def test_a_useless_archive_is_refused(server, tmp_path, content, fault):
    server.publish(SPLIT, content)
    with pytest.raises(DownloadError, match=fault):
        fetch(server, tmp_path)
    assert not (tmp_path / "LibriSpeech" / SPLIT).exists()


def test_unknown_names_list_the_known_ones(tmp_path):
    with pytest.raises(DownloadError, match="librispeech, mini-librispeech"):
        download_corpus("libri", None, tmp_path)
    with pytest.raises(
        DownloadError, match="no split dev-clean; .*dev-clean-2"
    ):
        download_corpus("mini-librispeech", ["dev-clean"], tmp_path)


def test_a_folder_that_cannot_be_written_is_one_line(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match="choose another folder"):
        fetch(server, tmp_path / "file")
