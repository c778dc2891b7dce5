"""Google's own authentication library as a referee of the emulator's identity services.

Usage: identity_referee.py ENDPOINT POD_METADATA_HOST BUCKET DIRECTORY. The directory holds `key.json`, `login.json` and
`external.json`. The bucket holds `in/a`, which each identity here may read, and `out/a`. Ends with a failed assertion
or prints one line a check.
"""

import os
import pathlib
import sys

ENDPOINT, POD, BUCKET, DIRECTORY = sys.argv[1:5]
os.environ["GCE_METADATA_HOST"] = POD

import google.auth
from google.api_core import exceptions
from google.auth import compute_engine, downscoped, iam, identity_pool, impersonated_credentials
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import Request
from google.cloud import storage
import google.oauth2.credentials
from google.oauth2 import service_account

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
ROBOT = "robot@demo.iam.gserviceaccount.com"


# The library knows no other endpoint for people, whatever their file says.
google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT = f"{ENDPOINT}/token"


def load(name):
    path = str(pathlib.Path(DIRECTORY) / name)
    if name == "external.json":
        # What reads any kind of file asks the Resource Manager about the project of this one.
        return identity_pool.Credentials.from_file(path, scopes=SCOPES)
    return google.auth.load_credentials_from_file(path, scopes=SCOPES)[0]


def bucket(credentials):
    client = storage.Client(project="demo", credentials=credentials, client_options={"api_endpoint": ENDPOINT})
    return client.bucket(BUCKET)


def reads(credentials):
    assert bucket(credentials).blob("in/a").download_as_bytes() == b"data"
    return bucket(credentials)


def refused(call, error):
    try:
        call()
    except error as refusal:
        return str(refusal)
    raise AssertionError("it was let in")


def files():
    for name in ["key.json", "login.json", "external.json"]:
        credentials = load(name)
        reads(credentials)
        assert credentials.token and not credentials.expired
        yield f"{name}: a token for {type(credentials).__module__}"
    own = service_account.Credentials.from_service_account_file(
        str(pathlib.Path(DIRECTORY) / "key.json"), scopes=SCOPES, always_use_jwt_access=True
    )
    reads(own)
    assert own.token.count(".") == 2 and not own.token.startswith("ya29")
    yield "a self-signed token"


def impersonated():
    iam._IAM_ENDPOINT = ENDPOINT + "/v1/projects/-/serviceAccounts/{}:generateAccessToken"
    login = load("login.json")
    robot = impersonated_credentials.Credentials(login, ROBOT, SCOPES, lifetime=600)
    reads(robot)
    yield "impersonation"

    other = impersonated_credentials.Credentials(login, "nobody@demo.example", SCOPES)
    said = refused(lambda: other.refresh(Request()), RefreshError)
    assert "NOT_FOUND" in said, said
    yield "an account that is not there"


def bounded():
    downscoped._STS_TOKEN_URL_PATTERN = f"{ENDPOINT}/v1/token"
    expression = (
        f"resource.name.startsWith('projects/_/buckets/{BUCKET}/objects/in/') || "
        "api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('in/')"
    )
    rule = downscoped.AccessBoundaryRule(
        available_resource=f"//storage.googleapis.com/projects/_/buckets/{BUCKET}",
        available_permissions=["inRole:roles/storage.objectViewer"],
        availability_condition=downscoped.AvailabilityCondition(expression, title="in"),
    )
    for name in ["key.json", "login.json"]:
        whole = load(name)
        part = downscoped.Credentials(whole, downscoped.CredentialAccessBoundary([rule]))
        inside = reads(part)
        assert [blob.name for blob in inside.list_blobs(prefix="in/")] == ["in/a"]
        refused(lambda: inside.blob("out/a").download_as_bytes(), exceptions.Forbidden)
        refused(lambda: list(inside.list_blobs()), exceptions.Forbidden)
        # Not every answer tells an end; the library takes the source's then.
        assert abs((part.expiry - whole.expiry).total_seconds()) < 5
        yield f"downscoping of {name}"


def metadata():
    reads(compute_engine.Credentials())
    yield "a pod's metadata server"


def main():
    for referee in (files, impersonated, bounded, metadata):
        for line in referee():
            print("ok:", line, flush=True)


main()
