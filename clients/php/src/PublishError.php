<?php

declare(strict_types=1);

namespace Newsfabric;

/** A message could not be published, or its result is unknown. */
abstract class PublishError extends \RuntimeException
{
}

/** The fabric can't accept the message. Sending it again won't help, except for the reason "overload". */
final class Rejected extends PublishError
{
    public function __construct(public readonly string $reason, public readonly string $detail)
    {
        parent::__construct("$reason: $detail");
    }
}

/** Brokers took the message and gave it back: no queue of the fabric is bound there. */
final class Returned extends PublishError
{
}

/**
 * The message was not sent, and waiting won't help: every broker refuses the login, the virtual host or the
 * queue for receipts, or has a certificate that can't be trusted.
 */
final class AccessRefused extends PublishError
{
}

/**
 * Neither receipt nor confirm in time: the message may have been routed, unless $sent is false. Publish it
 * again with this messageId.
 */
final class Unanswered extends PublishError
{
    /** @param string $trouble the reason for a missing or closed connection; '' if none is known */
    public function __construct(
        public readonly string $messageId,
        float $seconds,
        string $trouble = '',
        public readonly bool $sent = true,
    ) {
        $what = $sent ? 'the message may have been routed nevertheless' : 'nothing was sent';
        parent::__construct("no answer within $seconds s; $what: publish it again with messageId $messageId"
            . ($trouble === '' ? '' : " ($trouble)"));
    }
}
