<?php

declare(strict_types=1);

namespace Newsfabric;

/** A message could not be published, or nobody knows whether it was. */
abstract class PublishError extends \RuntimeException
{
}

/** It can't be accepted. Sending it again won't help, but for the reason "overload". */
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
 * It was not sent, and waiting won't help: every broker refuses the login, the virtual host or the queue for
 * receipts, or has a certificate that can't be trusted.
 */
final class AccessRefused extends PublishError
{
}

/**
 * Neither receipt nor confirm in time: it may have been routed, unless $sent is false. Publish it again with
 * this messageId.
 */
final class Unanswered extends PublishError
{
    /** @param string $trouble why there is no connection, or what closed it; '' if nothing is known */
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
