"""Each block of each page is taken as it is printed: run, rendered, compiled or parsed.

`printed.LANGUAGES` says which.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import graphql
import pytest
import yaml
from django.core.management import CommandError, get_commands, load_command_class
from django.db import connection, transaction
from django.template import engines

from ..support.commands import helped
from ..support.commands import typed as typed_as
from . import printed
from .pages import ROOT, Block, blocks, pages
from .shop import commands

README = ROOT / "README.md"
#: Every block, by its place.
BLOCKS = {
    f"{page.relative_to(ROOT).as_posix()}:{block.line}": block
    for page in (*pages(), README)
    for block in blocks(page)
}
#: Every page as one text: commands are also named in sentences.
PROSE = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in (*pages(), README)
}
#: Our commands: those of Django's are not our matter.
OURS = sorted(
    name for name, app in get_commands().items() if str(app).startswith("django_idempotency")
)


def of(*languages: str) -> list[Any]:
    return [
        pytest.param(block, id=place)
        for place, block in BLOCKS.items()
        if block.language in languages
    ]


def test_each_language_is_taken() -> None:
    """A block in a language that nothing takes fails, and so does a language that no page has."""
    assert {block.language for block in BLOCKS.values()} == set(printed.LANGUAGES)
    assert all(printed.LANGUAGES.values())
    assert len(BLOCKS) > 280


def test_each_fence_is_a_block() -> None:
    """No fence is missed: what opens and closes one is counted apart."""
    fences = sum(len(re.findall(r"^ *```", text, re.MULTILINE)) for text in PROSE.values())
    assert fences == 2 * len(BLOCKS)


# ------------------------------------------------------------------------------------------- Python


@pytest.mark.slow
def test_python_runs() -> None:
    """Each block runs behind those before it on its page, and each name in it is imported or
    defined there.
    """
    command = [sys.executable, "-m", "tests.docs.printed"]
    suffix = f"{os.environ.get('TEST_DATABASE_SUFFIX', '')}_printed"
    environment = {**os.environ, "DATABASE": "sqlite", "TEST_DATABASE_SUFFIX": suffix}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_each_exception_is_needed() -> None:
    """What is not run is a block of a page, and has a reason."""
    codes = [block.code for block in BLOCKS.values()]
    assert [
        first for first in printed.NOT_RUN if not any(code.startswith(first) for code in codes)
    ] == []
    assert [test for test in printed.PLAYED.values() if not (ROOT / test).exists()] == []
    run = [
        block
        for page in pages()
        for block in printed.examples(page)
        if not printed.why_not_run(page, block)
    ]
    assert len(run) > 160


# ---------------------------------------------------------------------------------------- templates


@pytest.mark.parametrize("block", of("html"))
def test_a_template(block: Block) -> None:
    """Django compiles it: it loads what it uses, and closes what it opens."""
    engines["django"].from_string(block.code)
    assert block.code.count("<form") == block.code.count("</form>")


# ---------------------------------------------------------------------------------- other languages


@pytest.mark.needs("node")
@pytest.mark.parametrize("block", of("javascript"))
def test_javascript(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "page.mjs"
    file.write_text(block.code, encoding="utf-8")
    done = subprocess.run(
        [shutil.which("node") or "node", "--check", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", of("json"))
def test_json(block: Block) -> None:
    json.loads(block.code)


class Yaml(yaml.SafeLoader):
    """Of CloudFormation, whose values may have tags."""


Yaml.add_multi_constructor("!", lambda loader, suffix, node: str(node.value))


@pytest.mark.parametrize("block", of("yaml"))
def test_yaml(block: Block) -> None:
    assert isinstance(yaml.load(block.code, Yaml), dict)


@pytest.mark.parametrize("block", of("ini", "properties"))
def test_settings_of_servers(block: Block) -> None:
    """Each line is a section, or a name and its value."""
    code = block.code if block.code.startswith("[") else f"[page]\n{block.code}"
    separators = " =" if block.title.endswith(".conf") or "appendonly" in code else "="
    parser = configparser.ConfigParser(delimiters=tuple(separators), interpolation=None)
    parser.read_string(code)
    assert all(parser[name] for name in parser.sections())


@pytest.mark.parametrize("block", of("graphql"))
def test_graphql(block: Block) -> None:
    graphql.parse(block.code)


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("block", [each for each in of("sql") if "…" not in each.values[0].code])
def test_sql(block: Block) -> None:
    """The server that it is for runs it."""
    vendor = "mysql" if "innodb" in block.code else "postgresql"
    if connection.vendor != vendor:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        if "ALTER ROLE shop" in block.code:
            cursor.execute("CREATE ROLE shop")
        cursor.execute(block.code)
        transaction.set_rollback(True)


# ----------------------------------------------------------------------------------------- commands


@pytest.mark.skipif(shutil.which("bash") is None, reason="The pages type bash.")
@pytest.mark.parametrize("block", of("shell", "console"))
def test_the_shell_reads_it(block: Block) -> None:
    """What is typed is a command of bash."""
    typed = (
        [each.typed for each in commands(block)] if block.language == "console" else [block.code]
    )
    assert typed, "a console shows what is typed, behind a prompt"
    for each in typed:
        done = subprocess.run(
            ["bash", "-n", "-c", each], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr


def typed() -> list[tuple[str, str, list[str]]]:
    """Return each command of ours in a console or a shell: where it is, its name, and what follows
    it.
    """
    found = []
    for place, block in BLOCKS.items():
        if block.language == "console":
            lines = [each.typed for each in commands(block)]
        elif block.language == "shell":
            lines = block.code.splitlines()
        else:
            continue
        for line in lines:
            if (match := re.search(rf"manage\.py ({'|'.join(OURS)})\b(.*)", line)) is not None:
                following = shlex.split(re.split(r" [|&;>]|\$\(", match[2])[0], comments=True)
                found.append((place, match[1], following))
    return found


@pytest.mark.parametrize(("place", "name", "arguments"), typed())
def test_a_command_takes_what_is_typed(place: str, name: str, arguments: list[str]) -> None:
    """Each option and argument is one that the command has."""
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    try:
        parser.parse_args(arguments)
    except CommandError as error:
        pytest.fail(f"{place}: {name} {' '.join(arguments)}: {error}")


def test_the_options_that_pages_name() -> None:
    """In a sentence, too: an option behind the name of a command is one of its options."""
    unknown = []
    for place, text in PROSE.items():
        for inline in re.findall(r"`([^`\n]*)`", text):
            match = re.search(rf"\b({'|'.join(OURS)})\b(.*)", inline)
            if match is None or "tenant" in inline:  # a command of django-tenants, around ours
                continue
            known = "".join(helped(words) for words in typed_as(match[1]))
            unknown += [
                f"{place}: {match[1]} {each}"
                for each in re.findall(r"--[\w-]+", match[2])
                if each not in known
            ]
    assert unknown == []


def test_there_are_commands() -> None:
    assert len(typed()) > 12
