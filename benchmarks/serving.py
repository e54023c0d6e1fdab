"""The compared views, for gunicorn and uvicorn."""

import os

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")

wsgi, asgi = get_wsgi_application(), get_asgi_application()
