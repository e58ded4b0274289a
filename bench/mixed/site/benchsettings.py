"""The help desk of testdata/mixed with a database, and the benchmark's views."""

import os

from helpdesk.settings import *  # noqa: F401,F403  PYTHONPATH leads there

ROOT_URLCONF = "benchurls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["BENCH_DB"]}}
