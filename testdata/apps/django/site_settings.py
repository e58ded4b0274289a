import sys
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent

# ledger.py is shared with the Flask app. At the end of the path, because the
# folder's own subfolders are called django and flask.
sys.path.append(str(BASE_DIR.parent))

SECRET_KEY = "only for the demo and the tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "site_urls"
WSGI_APPLICATION = "site_wsgi.application"
ASGI_APPLICATION = "site_asgi.application"
INSTALLED_APPS = []
MIDDLEWARE = [
    "site_middleware.LedgerMiddleware",
    "django.middleware.common.CommonMiddleware",
]
DATABASES = {}
USE_TZ = True
USE_I18N = False
APPEND_SLASH = False
DATA_UPLOAD_MAX_MEMORY_SIZE = None  # /echo reads bodies of any size
