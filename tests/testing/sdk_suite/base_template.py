"""Stands in for the `tests/common.py` that the official SDK's tests import and its sdist leaves out.

Written from what those tests use: names for buckets, keys and files that are random and cleaned up, clients made from
the environment, and a few assertions.
"""

import base64
import contextlib
import hashlib
import os
import random
import string
import unittest

from requests.structures import CaseInsensitiveDict
from tos import Auth, TosClient, TosClientV2
from tos.credential import StaticCredentialsProvider
from tos.exceptions import TosServerError

_LETTERS = string.ascii_lowercase
_TO_LETTERS = bytes(ord(_LETTERS[byte % len(_LETTERS)]) for byte in range(256))


def random_string(n):
    return "".join(random.choices(_LETTERS, k=n))


def random_bytes(n):
    """Letters, since some tests decode what they get; from the system's source, which is fast for megabytes."""
    return os.urandom(n).translate(_TO_LETTERS)


def calculate_md5(content):
    return base64.b64encode(hashlib.md5(content.read()).digest())


def clean_and_delete_bucket(tos_client, bucket):
    """Empties and deletes a bucket; a bucket that is gone or will not go is left alone."""
    with contextlib.suppress(TosServerError):
        keys = []
        marker = ""
        while True:
            page = tos_client.list_objects(bucket, marker=marker)
            keys += [item.key for item in page.contents]
            if not page.is_truncated:
                break
            marker = page.next_marker
        # Directories go after what is in them.
        for key in reversed(keys):
            tos_client.delete_object(bucket, key)
        for upload in tos_client.list_multipart_uploads(bucket).uploads:
            tos_client.abort_multipart_upload(bucket, upload.key, upload.upload_id)
        tos_client.delete_bucket(bucket)


class TosTestBase(unittest.TestCase):
    def setUp(self):
        setting = os.environ.get
        self.ak, self.sk = setting("AK"), setting("SK")
        self.endpoint, self.region = setting("Endpoint"), setting("Region")
        self.endpoint2, self.region2 = setting("Endpoint2"), setting("Region2")
        self.account_id = setting("AccountId")
        self.callback_url = setting("CallbackUrl")
        self.cloud_function = setting("CloudFunction")
        self.mq_instance_id = setting("MqInstanceId")
        self.mq_role_name = setting("MqRoleName")
        self.mq_access_key_id = setting("MqAccessKeyId")
        self.bucket_name = "py-sdk-" + random_string(10)
        self.object_name = "object-" + random_string(10)
        self.prefix = random_string(12)
        self.bucket_delete = []
        self.temp_files = []
        options = {"enable_crc": True, "max_retry_count": 2}
        self.client = TosClientV2(self.ak, self.sk, self.endpoint, self.region, **options)
        self.version_client = self.client
        provider = StaticCredentialsProvider(self.ak, self.sk)
        self.client2 = TosClientV2(
            endpoint=self.endpoint2, region=self.region2, credentials_provider=provider, **options
        )

    def tearDown(self):
        for name in self.temp_files:
            with contextlib.suppress(FileNotFoundError):
                os.remove(name)
        for bucket in self.bucket_delete:
            clean_and_delete_bucket(self.client2, bucket)
        self.client.close()
        self.client2.close()

    def random_key(self, suffix=""):
        return self.prefix + random_string(12) + suffix

    def random_filename(self):
        self.temp_files.append(random_string(16))
        return self.temp_files[-1]

    def assertFileContent(self, filename, content):
        with open(filename, "rb") as file:
            assert file.read() == content, f"{filename} has other bytes than were stored"

    def assertObjectContent(self, bucket, key, content):
        assert self.client.get_object(bucket, key).read() == content, f"{key} has other bytes than were stored"


class TosTestCase(unittest.TestCase):
    """For the tests of the first client, which answer themselves."""

    def setUp(self):
        self.bucket_name, self.key_name = "test_bucket", "test_key"
        self.location, self.region = "cn-beijing", "beijing"
        self.date = "2021-01-01T00:00:00.000Z"
        self.client = TosClient(Auth("ak", "sk", self.region), "tos-cn-beijing.volces.com")


class MockResponse:
    """An answer as the SDK's HTTP layer sees one."""

    def __init__(self, status_code=200, headers=None, body=""):
        self.status_code = status_code
        self.headers = CaseInsensitiveDict({"x-tos-request-id": "021633693288", **(headers or {})})
        self.body = body.encode() if isinstance(body, str) else body

    def iter_content(self, chunk_size=1, decode_unicode=False):
        yield self.body or b"{}"

    def __iter__(self):
        return self.iter_content()
