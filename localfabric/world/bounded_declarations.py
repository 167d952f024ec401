"""Bounds on declarations and consumers in a broker: a file that Erlang evaluates before RabbitMQ
begins, like that of :mod:`localfabric.world.hidden_logins`.

A queue, a binding or a consumer has arguments, which RabbitMQ stores as received, and copies. A
frame of 64 KiB has room for 12,500 fields. These cost 3.7 MB of memory for each queue, and 2.8 MB
for each consumer (thirty of a publisher's in two seconds, on 3.10.8; more on 4.3.6). So some 140
queues of one publisher block an entrance of 512 MB, and 180 consumers of a box its core. RabbitMQ
bounds neither arguments nor, before 3.12, a channel's consumers.

But RabbitMQ has *interceptors* for channels: a module that sees each method first. This one refuses
arguments of more than 1 KiB (in Erlang's external form), and more than eight consumers on a
channel. It refuses bindings between exchanges, of which the fabric has none: a box has the rights
to bind exchanges under its queues' names to ``upstream``, and nothing counts such bindings. The
channel is closed (403, or 404). Methods over AMQP 1.0 bypass it: see
:mod:`localfabric.world.broker`.

It is compiled by the broker's own Erlang, and registered again whenever RabbitMQ restarts, by a
process of Erlang's own supervisor (``kernel_safe_sup``), which restarts the process. If it fails
repeatedly, or can't register, the node ends: no broker runs without these bounds.

Ansible's role rabbitmq has the same file. The Helm chart hasn't: only its own gateway and agent
reach the broker of a box.
"""

from __future__ import annotations

from typing import Final

#: The file's name beside a broker's settings.
FILE: Final = "bounded-declarations.eval"
EXPRESSIONS: Final = """\
%% Evaluated before RabbitMQ begins: no arguments of more than 1 KiB, no more than eight consumers
%% on a channel, no bindings between exchanges. Of each of these methods the third field is a name,
%% and the last the arguments. RabbitMQ 3.10 ends the connection over an interceptor that fails, so
%% the name is replaced by one that is refused to everybody, and says why.
Source = [
    "-module(newsfabric_bounds).",
    "-behaviour(rabbit_channel_interceptor).",
    "-export([description/0, init/1, applies_to/0, intercept/3, start_link/0, keep/0]).",
    "description() -> [{description, <<\\"bounds arguments and consumers\\">>}].",
    "init(_) -> none.",
    "applies_to() ->"
    "    ['queue.declare', 'queue.bind', 'exchange.declare', 'exchange.bind', 'basic.consume'].",
    "intercept(Method, Content, _) -> {bounded(Method), Content}.",
    "bounded(Method) when element(1, Method) =:= 'exchange.bind' ->"
    "    refused(Method, <<\\"amq.(bindings between exchanges)\\">>);"
    "bounded(Method) ->"
    "    Consumes = element(1, Method) =:= 'basic.consume',"
    "    case erlang:external_size(element(tuple_size(Method), Method)) > 1024 of"
    "        true -> refused(Method, <<\\"amq.(arguments of more than 1 KiB)\\">>);"
    "        false when Consumes ->"
    "            case consumers() < 8 of"
    "                true -> Method;"
    "                false -> refused(Method, <<\\"amq.(more than 8 consumers on a channel)\\">>)"
    "            end;"
    "        false -> Method"
    "    end.",
    "refused(Method, Name) -> setelement(tuple_size(Method), setelement(3, Method, Name), []).",
    "consumers() ->"
    "    Mine = {'==', {element, 2, {element, 1, '$1'}}, self()},"
    "    ets:select_count(consumer_created, [{'$1', [Mine], [true]}]).",
    "start_link() -> {ok, spawn_link(newsfabric_bounds, keep, [])}.",
    "keep() ->"
    "    case whereis(rabbit_registry) of"
    "        undefined -> timer:sleep(20);"
    "        Registry -> register_with(Registry)"
    "    end,"
    "    newsfabric_bounds:keep().",
    "register_with(Registry) ->"
    "    Watch = erlang:monitor(process, Registry),"
    "    try rabbit_registry:register(channel_interceptor, <<\\"newsfabric\\">>, newsfabric_bounds)"
    "    catch exit:_ -> ended end,"
    "    receive {'DOWN', Watch, _, _, _} -> ended end."
],
Forms = [begin
    {ok, Tokens, _} = erl_scan:string(Form),
    {ok, Parsed} = erl_parse:parse_form(Tokens),
    Parsed
end || Form <- Source],
{ok, Module, Code} = compile:forms(Forms, []),
{module, Module} = code:load_binary(Module, "bounded-declarations.eval", Code),
{ok, _} = supervisor:start_child(
    kernel_safe_sup, #{id => Module, start => {Module, start_link, []}, shutdown => brutal_kill}).
"""
