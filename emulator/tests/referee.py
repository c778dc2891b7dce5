"""Google's Python client, gcsfs and rclone as referees of the emulator.

Usage: referee.py ENDPOINT BUCKET [ACCESS_TOKEN]. Ends with a failed assertion or prints one line a check.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# It would ask for the bucket's layout over gRPC first.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

import gcsfs
import google.oauth2.credentials
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

QUANTUM = 256 * 1024


def official(endpoint, bucket_name, token):
    credentials = google.oauth2.credentials.Credentials(token) if token else AnonymousCredentials()
    client = storage.Client(project="demo", credentials=credentials, client_options={"api_endpoint": endpoint})
    bucket = client.bucket(bucket_name)
    data = os.urandom(3 * QUANTUM + 77)

    blob = bucket.blob("official/small ü #?+%.txt")
    blob.metadata = {"k": "v"}
    blob.upload_from_string("hello", content_type="text/plain", if_generation_match=0, checksum="crc32c")
    assert blob.download_as_bytes() == b"hello"
    try:
        blob.upload_from_string("again", if_generation_match=0)
        raise AssertionError("an existing name was taken")
    except exceptions.PreconditionFailed:
        pass
    yield "upload of small objects, preconditions"

    large = bucket.blob("official/large", chunk_size=QUANTUM)
    large.upload_from_string(data, checksum="md5")
    assert large.download_as_bytes(checksum="crc32c") == data
    assert large.download_as_bytes(start=5, end=QUANTUM) == data[5 : QUANTUM + 1]
    with bucket.blob("official/stream", chunk_size=QUANTUM).open("wb") as stream:
        for start in range(0, len(data), 1000):
            stream.write(data[start : start + 1000])
    with bucket.blob("official/stream", chunk_size=QUANTUM).open("rb") as stream:
        stream.seek(1000)
        assert stream.read() == data[1000:]
    yield "resumable uploads of known and unknown size, ranged and chunked downloads"

    large.reload()
    assert int(large.size) == len(data) and large.md5_hash and large.crc32c
    large.metadata = {"a": "1", "b": "2"}
    large.patch(if_metageneration_match=large.metageneration)
    large.metadata = {"a": None}
    large.patch()
    large.reload()
    assert large.metadata == {"b": "2"}, large.metadata
    large.cache_control = "no-store"
    large.update()
    yield "reload, patch, update"

    for index in range(5):
        bucket.blob(f"official/dir/{index}").upload_from_string(str(index))
    pages = client.list_blobs(bucket_name, prefix="official/", delimiter="/", page_size=2)
    names = [found.name for found in pages]
    assert names == ["official/large", blob.name, "official/stream"] or sorted(names) == sorted(
        ["official/large", blob.name, "official/stream"]
    ), names
    assert pages.prefixes == {"official/dir/"}, pages.prefixes
    fields = "items(name),nextPageToken"
    assert len(list(client.list_blobs(bucket_name, prefix="official/dir/", page_size=2, fields=fields))) == 5
    yield "lists in pages, with prefixes and fields"

    composed = bucket.blob("official/composed")
    composed.compose([bucket.blob(f"official/dir/{index}") for index in range(5)], if_generation_match=0)
    assert composed.download_as_bytes() == b"01234" and composed.component_count == 5
    copied = bucket.copy_blob(composed, bucket, "official/copied")
    assert copied.download_as_bytes() == b"01234"
    target = bucket.blob("official/rewritten")
    token, _, _ = target.rewrite(large)
    while token:
        token, _, _ = target.rewrite(large, token=token)
    assert target.download_as_bytes() == data
    moved = bucket.move_blob(target, "official/moved")
    assert moved.download_as_bytes() == data and not target.exists()
    yield "compose, copy, rewrite, move"

    packed = bucket.blob("official/packed")
    packed.content_encoding = "gzip"
    import gzip

    packed.upload_from_string(gzip.compress(b"plain"), content_type="text/plain")
    assert packed.download_as_bytes() == b"plain"
    assert gzip.decompress(packed.download_as_bytes(raw_download=True)) == b"plain"
    yield "gzip, unpacked and as stored"

    with client.batch():
        for index in range(5):
            bucket.blob(f"official/dir/{index}").delete()
    for found in list(client.list_blobs(bucket_name, prefix="official/")):
        found.delete()
    try:
        composed.download_as_bytes()
        raise AssertionError("a deleted object was read")
    except exceptions.NotFound:
        pass
    yield "batch and single deletes"


def fsspec_client(endpoint, bucket, token):
    credentials = google.oauth2.credentials.Credentials(token) if token else "anon"
    fs = gcsfs.GCSFileSystem(project="demo", token=credentials, endpoint_url=endpoint, skip_instance_cache=True)
    root = f"{bucket}/fsspec"
    data = os.urandom(3 * QUANTUM + 77)
    fs.pipe_file(f"{root}/small", b"hello")
    assert fs.cat_file(f"{root}/small") == b"hello"
    assert fs.cat_file(f"{root}/small", start=1, end=3) == b"el"
    with fs.open(f"{root}/large", "wb", block_size=QUANTUM) as stream:
        stream.write(data)
    with fs.open(f"{root}/large", "rb", block_size=QUANTUM) as stream:
        stream.seek(QUANTUM - 3)
        assert stream.read(QUANTUM) == data[QUANTUM - 3 : 2 * QUANTUM - 3]
    assert fs.cat_file(f"{root}/large") == data
    yield "fsspec: write and read, small and large"

    fs.pipe_file(f"{root}/dir/a b+c", b"x")
    fs.invalidate_cache()
    assert sorted(fs.ls(root)) == [f"{root}/{name}" for name in ("dir", "large", "small")], fs.ls(root)
    assert fs.info(f"{root}/large")["size"] == len(data)
    assert len(fs.find(root)) == 3
    yield "fsspec: list, stat, find"

    fs.cp_file(f"{root}/small", f"{root}/copy")
    fs.mv(f"{root}/copy", f"{root}/renamed")
    assert fs.cat_file(f"{root}/renamed") == b"hello" and not fs.exists(f"{root}/copy")
    fs.setxattrs(f"{root}/small", k="v")
    assert fs.getxattr(f"{root}/small", "k") == "v"
    fs.merge(f"{root}/merged", [f"{root}/small", f"{root}/renamed"])
    assert fs.cat_file(f"{root}/merged") == b"hellohello"
    yield "fsspec: copy, rename, attributes, merge"

    fs.rm(root, recursive=True)
    fs.invalidate_cache()
    assert not fs.exists(root)
    yield "fsspec: recursive removal"


def rclone(endpoint, bucket, token):
    beside = pathlib.Path(sys.executable).with_name("rclone")
    program = str(beside) if beside.exists() else shutil.which("rclone")
    if not program:
        assert os.environ.get("GCSMOUNT_REQUIRE_REFEREE") != "1", "rclone is not installed"
        yield "NOT RUN: rclone is not installed"
        return
    with tempfile.TemporaryDirectory() as scratch:
        local = pathlib.Path(scratch) / "local"
        (local / "dir").mkdir(parents=True)
        large = os.urandom(20_000_000)
        (local / "large").write_bytes(large)
        for index in range(10):
            (local / "dir" / f"f {index}+#?%.txt").write_text(str(index))
        config = pathlib.Path(scratch) / "config"
        identity = f"access_token = {token}" if token else "anonymous = true"
        config.write_text(
            "[gcs]\ntype = google cloud storage\nno_check_bucket = true\nbucket_policy_only = true\n"
            f"endpoint = {endpoint}/storage/v1/\n{identity}\n"
        )
        options = ["--config", str(config), "--retries", "1", "--low-level-retries", "1"]

        def run(*args, data=None):
            done = subprocess.run([program, *options, *args], input=data, capture_output=True, timeout=120)
            assert done.returncode == 0, (args, done.stderr.decode())
            return done.stdout

        root = f"gcs:{bucket}/rclone"
        run("copy", str(local), root)
        run("check", str(local), root, "--download")
        assert run("lsf", root).decode().split() == ["dir/", "large"]
        yield "rclone: copy and check a tree, list"

        run("moveto", f"{root}/large", f"{root}/moved")
        run("copyto", f"{root}/moved", f"{root}/copied")
        run("touch", f"{root}/copied")
        assert run("cat", f"{root}/copied") == large
        assert run("cat", f"{root}/copied", "--offset", "5", "--count", "10") == large[5:15]
        run("rcat", f"{root}/stream", data=large)
        assert run("cat", f"{root}/stream") == large
        yield "rclone: move, copy, touch, ranges, a stream of unknown size"

        run("purge", root)
        assert run("lsf", "-R", f"gcs:{bucket}") == b""
        yield "rclone: purge"


def main():
    endpoint, bucket = sys.argv[1:3]
    token = sys.argv[3] if len(sys.argv) > 3 else None
    for referee in (official, fsspec_client, rclone):
        for line in referee(endpoint, bucket, token):
            print("ok:", line, flush=True)


main()
