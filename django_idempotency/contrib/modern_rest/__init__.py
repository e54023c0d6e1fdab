"""Endpoints of django-modern-rest, guarded behind their own authentication, throttling and
validation.
"""
