"""For gunicorn: `gunicorn testproject.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
os.environ.setdefault("CONN_MAX_AGE", "60")

application = get_wsgi_application()
