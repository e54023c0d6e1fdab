"""The setting ROUTES: policies of views that a project cannot edit.

The middleware guards them by these.
"""
