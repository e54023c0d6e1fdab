"""Fingerprints of JSON that overlook some of its members, or compare its numbers by their value:
see json_body().
"""

from .json import JSONBody as JSONBody
from .json import json_body as json_body
