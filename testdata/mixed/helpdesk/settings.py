import os
import sys
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

# ledger.py is shared with the smaller apps. At the end of the path, because
# that folder's own subfolders are called django and flask.
sys.path.append(str(BASE_DIR.parent / "apps"))

SECRET_KEY = "only for the example and the tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "helpdesk.urls"
WSGI_APPLICATION = "helpdesk.wsgi.application"
ASGI_APPLICATION = "helpdesk.asgi.application"
INSTALLED_APPS = ["django.contrib.sessions", "desk"]
MIDDLEWARE = [
    "helpdesk.middleware.LedgerMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
    }
]
DATABASES = {}
# Both servers read the same session, and there is nothing to set up.
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
SESSION_COOKIE_HTTPONLY = True
USE_TZ = True
USE_I18N = False
APPEND_SLASH = False

AGENTS = {"ada": "engine", "grace": "compiler"}
# Where jobs leave a file when they are done, and events wait for theirs.
JOBS_DIR = os.environ.get("JOBS_DIR", "/tmp")
