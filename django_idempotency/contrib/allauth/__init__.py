"""Views of django-allauth, which the middleware leaves alone. Imports no allauth."""
