"""What a Prometheus server scrapes: the figures of all workers, or of this process alone."""

import os

from django.http import HttpRequest, HttpResponse


def metrics(_request: HttpRequest) -> HttpResponse:
    """Return the figures in the text format. A real project lets only its monitoring network in."""
    # Not at the top: the other routes do without that package.
    from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
