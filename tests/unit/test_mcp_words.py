"""What an MCP server says, before anybody believes it: names, words, and who it is."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_agent.config import Config
from kernel_agent.errors import UsageError
from kernel_agent.tools.mcp.foreign import names_for, words
from kernel_agent.tools.mcp.schema import identifier
from kernel_agent.tools.mcp.servers import named_servers

SECRET = "sk-12345678"


def one(text, configured=None, environment=None):
    (server,) = named_servers([text], configured or {}, environment or {})
    return server


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("uvx mcp-server-time", "time"),
        ("/usr/bin/python3.11 -m mcp_server_git --repository .", "git"),
        ("python weather.py", "weather"),
        ("npx -y @modelcontextprotocol/server-everything stdio", "everything"),
        ("uv tool run mcp-server-fetch", "fetch"),
        ("clock=uvx mcp-server-time", "clock"),
        ("my-server=uvx mcp-server-time", "my_server"),
        ("https://mcp.example.org/mcp", "example_org"),
        (f"npx --key {SECRET} thing", "npx"),
        (f"server --token={SECRET}", "server"),
    ],
)
def test_a_server_is_called_after_its_program_never_after_an_argument(text, name):
    """The name stands in traces; an argument may be a key."""
    assert one(text).name == name


def test_two_servers_of_one_name_are_numbered():
    """Both are connected, and told apart."""
    servers = named_servers(["uvx mcp-server-time", "mcp-server-time"], {}, {})
    assert [server.name for server in servers] == ["time", "time_2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "name a command"),
        ("'unclosed", "not a command line"),
        ("https://", "names no host"),
        ("ftp://host/x", "only http"),
        ("x=", "name a command"),
    ],
)
def test_what_cannot_be_a_server_is_said_in_one_line(text, said):
    """Before anything is started."""
    with pytest.raises(UsageError, match=said):
        one(text if text != "x=" else "   ")


def test_a_configured_server_gets_the_variables_that_are_named_and_no_others():
    """A key is in the environment, its name in the file."""
    table = {"command": "wiki-server", "env": ["WIKI_TOKEN"], "tools": ["search"]}
    server = one("wiki", {"wiki": table}, {"WIKI_TOKEN": SECRET, "OTHER": "x"})
    assert (server.env, server.tools) == ({"WIKI_TOKEN": SECRET}, ("search",))
    remote = {"url": "https://x.org/mcp", "headers": {"Authorization": "Bearer $WIKI_TOKEN"}}
    server = one("wiki", {"wiki": remote}, {"WIKI_TOKEN": SECRET})
    assert server.headers == {"Authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(server)
    with pytest.raises(UsageError, match="WIKI_TOKEN is not set"):
        one("wiki", {"wiki": table})


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "needs a command or a url"),
        ({"command": "a", "url": "https://b"}, "not both"),
        ({"command": "a", "cmd": 1}, "no setting 'cmd'"),
        ({"command": ["a"]}, "command must be str"),
        ("a", "must be a table"),
    ],
)
def test_a_wrong_table_is_said_by_its_name(table, said):
    """The user's file, the user's error."""
    with pytest.raises(UsageError, match=said):
        one("wiki", {"wiki": table})


def test_a_trace_holds_the_names_of_servers_and_databases_only():
    """What the settings hold of them may be a key."""
    config = Config(
        mcp={"wiki": {"url": f"https://x/?key={SECRET}"}}, sql={"sales": f"postgresql://u:{SECRET}@h/d"}
    )  # fmt: skip
    assert SECRET not in json.dumps(config.public)
    assert (config.public["mcp"], config.public["sql"]) == (["wiki"], ["sales"])


def test_what_a_server_says_of_its_keys_is_taken_out():
    """An error that quotes a key would bring it into the trace."""
    server = one(f"https://me:passw0rd@x.org/mcp?key={SECRET}")
    said = server.without_secrets(f"401 for key={SECRET} as me:passw0rd at {server.url}")
    assert SECRET not in said
    assert "passw0rd" not in said


def test_the_keys_of_servers_are_hidden_by_the_rule_of_all_secrets():
    """In each form in which a text may quote them, by one mark; words that are short stay."""
    table = {"command": "look --port 443001 --key k/ey+value", "env": {"MODE": "offline"}}
    server = one("wiki", {"wiki": table})
    told = "offline at 443001: k/ey+value and k%2Fey%2Bvalue are no keys"
    hidden = "offline at 443001: [secret] and [secret] are no keys"
    assert server.without_secrets(told) == hidden


@example("\U000e0100", 20)  # seen by nobody, and printable
@given(st.text(), st.integers(min_value=20, max_value=300))
def test_words_can_end_nothing_that_they_stand_in(text, length):
    """Whatever a server writes, a docstring with it is one docstring, in one line, bounded."""
    said = words(text, length)
    assert len(said) <= length
    assert said.isprintable()
    assert not set('"`\\<>#\n') & set(said)
    tree = ast.parse(f'def f():\n    """It says: "{said}"."""')
    assert ast.get_docstring(tree.body[0]) == f'It says: "{said}".'


def test_invisible_letters_are_no_words():
    """Tag characters and direction overrides can carry what a person does not see."""
    assert words("a\U000e0069\U000e0067b\u202ec\u200bd", 50) == "a b c d"


@given(st.lists(st.text(max_size=80), max_size=20))
def test_names_are_identifiers_that_shadow_nothing(given_names):
    """Each tool has one name, and it is a new one."""
    found = names_for("bad", given_names, {"sql"})
    assert len(set(found)) == len(found) == len(given_names)
    for name in found:
        assert name.isidentifier()
        assert name.isascii()
        assert name not in {"print", "open", "final_answer", "sql", "pd", "outputs"}


def test_a_name_that_is_taken_gets_the_servers_before_it():
    """Otherwise it is the server's own."""
    found = names_for("git", ["log", "open", "final_answer", "log", "get-file"], {"sql"})
    assert found == ["log", "git_open", "git_final_answer", "git_log", "get_file"]
    assert identifier("class") == "class_"
