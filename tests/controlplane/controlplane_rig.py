"""A machine in a folder: a stand-in Go compiler, a cache, and a release host on loopback."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from controlplane.pins import (
    CHANGES,
    COMPONENTS,
    METRICS_SERVER,
    MODULES_DIRECTORY,
    OPTIONAL_MODULES,
    PINNED_MODULES,
    filled,
    release_name,
)
from controlplane.platforms import Platform
from controlplane.request import BinaryRequest

LINUX = Platform("linux", "amd64")
RELEASED_MODULES = [
    module
    for module in (*PINNED_MODULES, OPTIONAL_MODULES[METRICS_SERVER])
    if module.release.file_path
]
PINNED_VERSIONS = {name: module.version for module in PINNED_MODULES for name in module.components}

# Writes scripts that print a version in place of binaries. A compiler that takes minutes cannot be
# made to fail on demand; this one fails as told by FAKE_GO_MODE.
_FAKE_GO = r"""#!/bin/sh
echo "$PWD: $*" >> "$FAKE_GO_DIR/calls"
case "$1 $2 $3" in
"env "*)
    printf '{"GOVERSION":"%s","GOCACHE":"%s/cache","GOMODCACHE":"%s/mod","GOTMPDIR":""}' \
        "$FAKE_GO_VERSION" "$FAKE_GO_DIR" "$FAKE_GO_DIR"
    exit 0 ;;
"mod download -json")
    printf '{"Dir":"%s/source"}' "$FAKE_GO_DIR"
    exit 0 ;;
"mod download "*)
    versions="$FAKE_GO_DIR/mod/cache/download/k8s.io/kubernetes/@v"
    mkdir -p "$versions"
    cp "$FAKE_GO_DIR/released.mod" "$versions/${3##*@}.mod"
    exit 0 ;;
"mod edit "*)
    exit 0 ;;
"mod tidy "*)
    cp go.mod "$FAKE_GO_DIR/tidied.mod"
    exit 0 ;;
esac
version=$(echo "$*" | sed -n 's/.*gitVersion=v\([^ ]*\).*/\1/p')
while [ "$1" != -o ]; do shift; done
output=$2
shift 2
mkdir -p "$(dirname "${output}x")"
case "$FAKE_GO_MODE" in
fail) echo half > "${output}x"; echo "pkg/a.go:1: syntax error" >&2; exit 1 ;;
full) echo "link: write $output: no space left on device" >&2; exit 1 ;;
gate)
    case "$1" in */kube-apiserver)
        echo half > "${output}kube-apiserver"
        echo $$ > "$FAKE_GO_DIR/pid"
        read -r _ < "$FAKE_GO_DIR/gate" ;;
    esac ;;
esac
for package; do
    case "$package" in
    */etcd/*) said="etcd Version: $FAKE_ETCD_VERSION" ;;
    */kwok/*) said="kwok version v0.8.0 go1.26.8 (linux/amd64)" ;;
    *) said="Kubernetes v$version" ;;
    esac
    case "$output" in */) file="$output${package##*/}" ;; *) file="$output" ;; esac
    printf '#!/bin/sh\necho "%s"\n' "$said" > "$file"
done
"""


def write_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def printing(version: str) -> str:
    """A program that only knows its version."""
    return f'#!/bin/sh\necho "Something v{version}"\n'


def write_unchanged(source: Path) -> None:
    """What kwok's changes are for, as Go's module cache has it: read-only."""
    if source.exists():
        return
    patch = (MODULES_DIRECTORY / "kwok" / CHANGES).read_text(encoding="utf-8")
    file = source / patch.partition("\n--- a/")[2].partition("\n")[0]
    hunks = patch.partition("@@")[2].splitlines()[1:]
    write_script(file, "".join(f"{line[1:]}\n" for line in hunks if line[:1] in (" ", "-")))
    file.chmod(0o444)
    file.parent.chmod(0o555)


@dataclass
class Rig:
    """Everything a request touches, below one folder; lines collects the progress."""

    root: Path
    lines: list[str] = field(default_factory=list)

    def request(self, mode: str = "good", **changes: str) -> BinaryRequest:
        """A request to build with the stand-in compiler. changes are environment variables."""
        write_script(self.root / "bin" / "go", _FAKE_GO)
        write_unchanged(self.root / "source")
        environment = {
            "PATH": f"{self.root / 'bin'}:/usr/bin:/bin",
            "FAKE_GO_DIR": str(self.root),
            "FAKE_GO_MODE": mode,
            "FAKE_GO_VERSION": "go1.26.8",
            "FAKE_ETCD_VERSION": PINNED_VERSIONS["etcd"],
            **changes,
        }
        return BinaryRequest(
            cache_directory=self.root / "cache",
            environment=environment,
            platform=LINUX,
            from_source=True,
            progress_interval_seconds=0.05,
        )

    def calls(self, verb: str) -> list[str]:
        """The stand-in's command lines with this verb ("build", "mod tidy")."""
        log = self.root / "calls"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [line for line in lines if f": {verb} " in f"{line} "]

    def binaries(self) -> list[str]:
        """The names of all binaries that the cache shows."""
        return sorted(p.name for p in (self.root / "cache" / "controlplane").glob("*-linux-*/*"))

    def staging(self) -> list[Path]:
        return list((self.root / "cache" / "controlplane").glob(".staging-*"))

    def make_gate(self) -> Path:
        """A pipe that the stand-in's Kubernetes build reads from before it goes on."""
        gate = self.root / "gate"
        os.mkfifo(gate)
        return gate


@dataclass
class ReleaseHost:
    """What a release host serves, by path; `cut` paths are announced longer than they are."""

    files: dict[str, bytes]
    cut: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def urls(self) -> dict[str, str]:
        return {module.name: f"{self.url}/{module.name}" for module in RELEASED_MODULES}


@contextmanager
def serving(host: ReleaseHost) -> Iterator[ReleaseHost]:
    """Serves host's files on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host.asked.append(self.path)
            body = host.files.get(self.path)
            self.send_response(404 if body is None else 200)
            extra = 1000 if self.path in host.cut else 0
            self.send_header("Content-Length", str(len(body or b"") + extra))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Requests are kept in host.asked instead."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        host.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield host
        finally:
            server.shutdown()
            thread.join()


def released() -> tuple[ReleaseHost, dict[str, str]]:
    """A host with all releases and the sums their projects publish, and all sums as
    checksums.json would pin them.
    """
    files, sums = {}, {}
    for module in RELEASED_MODULES:
        for component in module.components:
            body = printing(module.version).encode()
            if module.release.archive_member is not None:
                member = filled(module.release.archive_member, module, component, "amd64")
                body = _archive(member, body)
            path = filled(module.release.file_path, module, component, "amd64")
            files[f"/{module.name}/{path}"] = body
            checksum = hashlib.sha256(body).hexdigest()
            sums[release_name(module, component, "amd64")] = checksum
            if module.release.checksum_path is not None:
                listing = filled(module.release.checksum_path, module, component, "amd64")
                line = f"{checksum}  {path.rpartition('/')[2]}\n"
                files[f"/{module.name}/{listing}"] = line.encode()
    return ReleaseHost(files), sums


def _archive(member: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(member)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def give(directory: Path, *components: str, **versions: str) -> Path:
    """A directory that holds these components (default: all), pinned unless a version is named."""
    for name in components or COMPONENTS:
        version = versions.get(name.replace("-", "_"), PINNED_VERSIONS[name])
        write_script(directory / name, printing(version))
    return directory


def with_releases(request: BinaryRequest, host: ReleaseHost, sums: dict[str, str]) -> BinaryRequest:
    """The request, allowed to download from host."""
    return replace(request, from_source=False, checksums=sums, release_base_urls=host.urls())
