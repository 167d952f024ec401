<?php

declare(strict_types=1);

namespace Newsfabric;

/**
 * Finds the message for which a broker closed a channel, and the reason. Pure.
 *
 * newsfabric/publish/refusals.py is the same in Python and gives the reasons: AMQP names no message, RabbitMQ's text
 * does.
 *
 * @internal
 */
final class Refusal
{
    /** The reason for which a broker's $words refuse $sending; null if they mean another. */
    public static function reason(string $words, Sending $sending): ?string
    {
        if (str_contains($words, 'ACCESS_REFUSED')) {
            $mine = str_contains($words, "topic '$sending->topic'") || str_contains($words, "access to exchange 'publish'");
            return $mine ? 'publisher_not_allowed' : null;
        }
        $properties = $sending->properties;
        return match (true) {
            preg_match('/PRECONDITION_FAILED - message size (\d+) is larger/', $words, $found) === 1
                => (int) $found[1] === strlen($sending->body) ? 'too_large' : null,
            preg_match("/PRECONDITION_FAILED - invalid expiration '(.*?)'/", $words, $found) === 1
                => $found[1] === ($properties['expiration'] ?? null) ? 'bad_property' : null,
            preg_match("/PRECONDITION_FAILED - user_id property set to '(.*?)'/", $words, $found) === 1
                => $found[1] === $properties['app_id'] ? 'publisher_not_allowed' : null,
            default => null,
        };
    }

    /** True if the broker takes no publisher's message: it isn't the fabric's entrance, or not any more. */
    public static function isNoEntrance(string $words): bool
    {
        return str_contains($words, "NOT_FOUND - no exchange 'publish'");
    }
}
