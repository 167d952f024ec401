"""A log filter that hides brokers' logins: a file that Erlang evaluates before RabbitMQ begins.

RabbitMQ before 4.3 logs the whole state of a shovel that ended, with its URIs: seen with 3.10.8 and
4.0.5 whenever a shovel's connection is reset. Neither a log level nor a formatter of RabbitMQ's
prevents that. Erlang's logger passes each event to filters first, and a filter is a function. This
one formats the event as text and hides the part between ``//`` and ``@``, as
:func:`newsfabric.topology.forms.mask` does. It is interpreted, so it isn't compiled for a version
of Erlang.

Ansible's role rabbitmq and the Helm chart have the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: The file's name beside a broker's settings.
FILE: Final = "hidden-logins.eval"
EXPRESSIONS: Final = """\
%% Evaluated before RabbitMQ begins: hides the login of every URI in what is logged. Logger forgets
%% a filter that fails, so this one catches everything; what it can't look through is left out.
Hide = fun(#{meta := Meta} = Event, _) ->
    try
        Text = unicode:characters_to_binary(
            logger_formatter:format(Event, #{template => [msg], single_line => true})),
        case re:replace(Text, "//[^ \\t\\r\\n\\"']*@", "//***@", [global, {return, binary}]) of
            Text -> ignore;
            Hidden -> Event#{msg := {string, Hidden}, meta := maps:remove(report_cb, Meta)}
        end
    catch
        _:_ -> Event#{msg := {string, "(a line that can't be looked through for logins)"}}
    end
end,
ok = logger:add_primary_filter(hidden_logins, {Hide, []}).
"""


def erl_flags(*files: Path | str) -> str:
    """Return ``ERL_AFLAGS``, which Erlang evaluates before the arguments that start RabbitMQ.

    If a file of ``files`` is missing or fails, Erlang ends with an error that names it: a broker
    runs with all of them or not at all.
    """
    # The name is in the match since Erlang's error shows only the value that didn't match.
    return " ".join(
        f"-eval '{{_, ok}} = {{{name}, file:eval({name})}}.'" for name in map(_quoted, files)
    )


def _quoted(file: Path | str) -> str:
    """Return ``file`` as an Erlang string that may stand between apostrophes."""
    escaped = str(file).replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\x{27}")
    return f'"{escaped}"'
