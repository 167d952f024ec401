"""``/openapi.json``: the frontdesk's API, for programs (OpenAPI 3.1). Pure.

Limits are imported from the code that enforces them. A test compares paths and methods with the
handlers, and another sends requests that the document allows and forbids.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from newsfabric.messages.envelope import JSON, MAX_EXPIRATION, MAX_INTEGER, MessageLimits
from newsfabric.topics import CLASSES
from wholesale.frontdesk.api.publication import (
    IDEMPOTENCY_KEY,
    MAX_SHORT,
    MIN_EXPIRATION,
    MOST_AT_ONCE,
)

_HISTORY_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": 200, "default": 20}
_TEXT: Final = {"type": ["string", "null"], "maxLength": MAX_SHORT}
_COUNT: Final = {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_INTEGER}
_WHY_WAIT: Final = "Not now. Send it again after `Retry-After` seconds."


def openapi_document(limits: MessageLimits, *, keys: bool) -> dict[str, Any]:
    """Return the document; ``keys`` states whether publishing needs an API key."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "newsfabric frontdesk",
            "version": version("newsfabric"),
            "description": "Publish to the fabric, read back, and find a gateway to connect to.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/publish": {"post": _publish(limits, keys)},
            "/history": {"get": _history()},
            "/endpoints.json": {"get": _endpoints()},
            "/healthz/live": {"get": _health("Whether the process turns at all.", {})},
            "/healthz/ready": {
                "get": _health(
                    "Whether it should be given work.", {"503": _answer("What it waits for.", {})}
                )
            },
        },
        "components": {
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {
                "Publication": _PUBLICATION,
                "Publications": _PUBLICATIONS,
                "Published": _PUBLISHED,
                "Rehearsed": _REHEARSED,
                "Answers": _ANSWERS,
                "Error": _ERROR,
            },
        },
    }


_PUBLICATION: Final = {
    "type": "object",
    "required": ["topic", "body"],
    "additionalProperties": False,
    "properties": {
        "topic": {
            "type": "string",
            "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$",
            "maxLength": MAX_SHORT,
            "description": "Dotted words; one of the fabric's topics.",
            "examples": ["news.breaking"],
        },
        "body": {"description": "Any JSON value; readers get it as it is."},
        "key": {**_TEXT, "description": "Groups the versions of one story."},
        "version": {**_COUNT, "description": "Of two with one key the higher is the newer."},
        "message_id": {**_TEXT, "description": "The same as `Idempotency-Key`."},
        "app_id": {**_TEXT, "description": "Who publishes. A key may be bound to one."},
        "type": {**_TEXT, "description": "Free text for whoever reads it."},
        "expiration": {
            **_COUNT,
            "minimum": MIN_EXPIRATION,
            "maximum": MAX_EXPIRATION,
            "description": "After so many ms nobody wants it any more.",
        },
        "traceparent": {**_TEXT, "description": "W3C Trace Context."},
    },
}

_PUBLISHED: Final = {
    "type": "object",
    "required": ["id", "identity", "message_id", "repeated"],
    "properties": {
        "id": {
            "type": "string",
            "description": "This region's router gave it. Gold has another one in each region.",
        },
        "identity": {
            "type": "string",
            "description": "Which message it is, for every copy and repeat in every region: "
            "compare this.",
        },
        "message_id": {"type": "string"},
        "repeated": {"type": "boolean"},
    },
}

_PUBLICATIONS: Final = {
    "type": "array",
    "minItems": 1,
    "maxItems": MOST_AT_ONCE,
    "description": "Each as Publication; what isn't is answered with an error in its place.",
    "items": {},
}

_REHEARSED: Final = {
    "type": "object",
    "description": "With `dry_run`: it would be routed. Nothing was sent.",
    "required": ["dry_run", "topic", "class"],
    "properties": {
        "dry_run": {"const": True},
        "topic": {"type": "string"},
        "class": {"enum": list(CLASSES)},
        "message_id": {"type": "string"},
        "identity": {"type": "string"},
    },
}

_ANSWERS: Final = {
    "type": "object",
    "required": ["answers"],
    "properties": {
        "answers": {
            "type": "array",
            "description": "One for each message, in their order: what it would have been alone.",
            "items": {
                "type": "object",
                "required": ["status"],
                "properties": {"status": {"type": "integer", "description": "Of HTTP."}},
            },
        }
    },
}

_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["reason", "detail"],
            "properties": {
                "reason": {"type": "string", "description": "One word, for programs."},
                "detail": {"type": "string", "description": "One line, for people."},
                "message_id": {"type": "string"},
            },
        }
    },
}


def _publish(limits: MessageLimits, keys: bool) -> dict[str, Any]:
    one, rehearsed, many = (
        {"$ref": f"#/components/schemas/{name}"} for name in ("Published", "Rehearsed", "Answers")
    )
    return {
        "operationId": "publish",
        "summary": "Publish a message, or several; returns when they are stored and routed.",
        "security": [{"key": []}, {"bearer": []}] if keys else [],
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "Sent again with the same key it is the same message.",
                "schema": {"type": "string", "pattern": f"^{IDEMPOTENCY_KEY}$"},
            },
            {
                "name": "dry_run",
                "in": "query",
                "description": "Say what would become of it, and send nothing.",
                "allowEmptyValue": True,
                "schema": {"type": "string", "enum": ["", "1", "true", "0", "false"]},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {
                    "schema": {
                        "oneOf": [
                            {"$ref": f"#/components/schemas/{name}"}
                            for name in ("Publication", "Publications")
                        ]
                    }
                }
            },
        },
        "responses": {
            "201": _answer("Stored and routed.", one),
            "200": _answer(
                "It had been routed before; the first id. Or each of a list was routed.",
                {"anyOf": [one, rehearsed, many]},
            ),
            "207": _answer("Of a list not each was routed: see each `status`.", many),
            "400": _error("The request isn't as described here."),
            "401": _error("The key is missing or wrong."),
            "403": _error("This key or publisher may not, or a web page asked."),
            "405": _error("Not POST."),
            "413": _error(f"The body has more than {limits.max_body_bytes} bytes."),
            "415": _error(f"The request isn't {JSON}."),
            "422": _error("Rejected: sending it again won't help."),
            "503": _error(_WHY_WAIT, retry=True),
            "504": _error("Unknown: send it again with the same key.", retry=True),
        },
    }


def _history() -> dict[str, Any]:
    return {
        "operationId": "history",
        "summary": "The newest messages of a public topic, oldest first.",
        # Not among the parameters: reply and errors are a gateway's, in another form.
        "description": "With `after`, a reader's position, it is what that reader has missed, "
        "asked of a gateway of this region and answered as it answers `GET /history`.",
        "parameters": [
            {
                "name": "topic",
                "in": "query",
                "required": True,
                "schema": {"type": "string"},
                "example": "news.breaking",
            },
            {"name": "limit", "in": "query", "schema": _HISTORY_LIMIT},
            {
                "name": "before",
                "in": "query",
                "description": "A message's id: older ones.",
                "schema": {"type": "string"},
            },
        ],
        "responses": {
            "200": _answer(
                "The messages, as readers get them pushed, without `position`.",
                {
                    "type": "object",
                    "required": ["topic", "messages"],
                    "properties": {
                        "topic": {"type": "string"},
                        "messages": {"type": "array", "items": {"type": "object"}},
                        "missing": {
                            "type": "array",
                            "description": "Ids of messages that the store has and can't read.",
                            "items": {"type": "string"},
                        },
                    },
                },
            ),
            "400": _error("`topic` is missing, or `limit` or `before` is wrong."),
            "403": _error("The topic isn't public."),
            "404": _error("There is no such topic."),
            "429": _error("Too often from this address: wait `Retry-After` seconds.", retry=True),
            "503": _error(_WHY_WAIT, retry=True),
        },
    }


def _endpoints() -> dict[str, Any]:
    urls = ("sockjs_url", "websocket_url", "sse_url")
    gateway = {
        "type": "object",
        "required": [*urls, "weight"],
        "properties": {
            **{name: {"type": "string"} for name in urls},
            "weight": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Its share of new readers, beside the others': choose by lot.",
            },
        },
    }
    found = {
        "type": "object",
        "required": ["region", "gateways", "alternates", "ttl", "retry_ms"],
        "properties": {"gateways": {"type": "array", "items": gateway}},
    }
    return {
        "operationId": "endpoints",
        "summary": "Which gateways to connect to, and where to ask when there is none.",
        "responses": {
            "200": _answer("Gateways of this region.", found),
            "503": _answer("None is ready: try `alternates`.", found),
        },
    }


def _health(summary: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": _answer("Yes.", {"type": "object"}), **more}}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    # Health pages are Tornado's JSON, which states its encoding.
    types = (JSON, f"{JSON}; charset=UTF-8")
    return {"description": description, "content": {kind: {"schema": schema} for kind in types}}


def _error(description: str, *, retry: bool = False) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    answer = {"description": description, "content": {JSON: {"schema": schema}}}
    if retry:
        answer["headers"] = {
            "Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}
        }
    return answer
